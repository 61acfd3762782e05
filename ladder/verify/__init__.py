"""The gates: every check that a stage has to pass before it gets a time."""
