"""The rungs of the ladder over a user's own PyTorch model: a file each, and each changes one choice of its parent."""
