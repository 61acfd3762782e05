"""A study: the same run at many points."""
