"""The one exception that a user is meant to read."""


class UsageError(Exception):
    """Something the user asked for cannot be done: one line with the thing, its value and the way out; exit code 2."""
