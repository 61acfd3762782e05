"""Plain CUDA kernels executed on the CPU, with what a GPU would only sometimes reveal made to show every time."""
