"""The exceptions with a meaning of their own: a user's mistake, and a stage that does not fit."""


class UsageError(Exception):
    """A request that cannot be met: one line with the thing, its value and the way out. Exit code 2."""


class MisfitError(Exception):
    """A stage cannot run this problem on this machine, which is no defect: its row says "skipped".

    The text is the reason in that row: one line that names the limit, and the closest rung where there is one.
    """
