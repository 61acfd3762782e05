"""The classic ladder: from hand-written kernels to a captured CUDA graph."""
