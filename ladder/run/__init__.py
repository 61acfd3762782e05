"""A run: its settings, its rounds, its results."""
