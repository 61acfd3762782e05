"""Ablation: launch shapes of the plain kernels, measured instead of fixed."""
