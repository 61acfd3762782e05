"""The terminal while a command runs: progress, pictures, plans."""
