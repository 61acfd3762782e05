"""The problem and the machine: sizes, data, oracle, costs and CUDA. Imports no stage."""
