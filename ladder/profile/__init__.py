"""Profiles of stages: kernels, copies and calls, recorded by CUPTI or nsys in epochs that are not timed."""
