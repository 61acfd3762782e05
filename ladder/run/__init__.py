"""A run: settings, rounds, results."""
