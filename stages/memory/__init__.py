"""Ablation: where the memory of a step's tensors comes from."""
