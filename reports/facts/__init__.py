"""The facts that renderings show, taken from results; no rendering."""
