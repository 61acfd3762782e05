"""The ladder: each file holds what its rung adds to the one below."""
