"""Words and numbers taken from results; no rendering."""
