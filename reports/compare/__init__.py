"""The command `compare`, and how it finds runs."""
