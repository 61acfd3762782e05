"""The schema of recorded files: all of `ladder` that reports may import."""
