"""The tests. Several run at a time, on all cores: libraries start no threads of their own beside them."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of BLAS and PyTorch, which would spin for one another
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # otherwise a process for each core, which imports PyTorch
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")  # otherwise a trial of the C++ compiler for each instruction set
