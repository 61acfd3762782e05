"""Kernels tested by a file of their name: `double` in NumPy, and `cases`; others are in `doubles.py` and `cases.py`."""
