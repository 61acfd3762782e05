"""The problem and the machine: sizes, data, oracle, costs, CUDA. Knows no stage."""
