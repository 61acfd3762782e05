"""Several GPUs: each trains on its share of a batch."""
