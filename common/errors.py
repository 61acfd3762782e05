"""The exception for a user's mistake."""


class UsageError(Exception):
    """A request that cannot be met: one line with the thing, its value and the way out. Exit code 2."""
