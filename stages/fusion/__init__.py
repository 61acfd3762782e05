"""Fewer kernels: operations of the captured step fused, or run side by side."""
