"""The base of what a report cannot do as asked."""


class ReportError(Exception):
    """A request that a report cannot meet: one line with the thing, its value and the way out."""
