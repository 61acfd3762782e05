"""The ladder over a user's own PyTorch model: its contract, its judge, its processes and what it writes."""
