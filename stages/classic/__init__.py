"""The six classic rungs: from hand-written kernels to a captured CUDA graph."""
