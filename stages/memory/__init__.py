"""Ablation: the source of memory for a step's tensors."""
