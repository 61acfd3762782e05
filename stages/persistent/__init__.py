"""One kernel for a whole epoch, on all multiprocessors or on one cluster."""
