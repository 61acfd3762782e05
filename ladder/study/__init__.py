"""Studies: the same run at many points."""
