"""CUDA: the only package that imports CuPy, cuda.* or nvmath."""
