"""What goes wrong with a profiler, which costs a stage its profile and nothing else."""


class ProfileError(Exception):
    """A profile could not be taken or read: one line that says of what and why."""
