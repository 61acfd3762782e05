"""The same ladder without a GPU: the same step and parts, kernels compiled for the CPU."""
