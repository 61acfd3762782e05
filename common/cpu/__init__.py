"""The CPU as a device for the training step: compiled kernels, their replay, and threads that meet."""
