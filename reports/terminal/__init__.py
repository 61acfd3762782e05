"""The terminal: tables, progress, explanations."""
