"""The error of a recorded file that cannot be used."""


class ResultsError(Exception):
    """A recorded file that cannot be read: one line with the file, the reason and the way out."""
