"""Ablation: the launch shapes of the naive product, measured instead of fixed."""
