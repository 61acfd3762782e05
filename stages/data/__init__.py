"""Ablation: how a batch reaches the GPU."""
