"""One kernel for a whole epoch, on all multiprocessors or on one cluster.

Only the launch changes, but its kernel takes over gemm, epilogue, head and update as well: a gain has several causes.
"""
