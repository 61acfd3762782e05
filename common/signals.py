"""Ctrl-C and its like, as KeyboardInterrupt."""

from __future__ import annotations

import signal

INTERRUPTED = 130  # exit status, as of a shell


def end_at_ctrl_c() -> None:
    """Until `interruptible`, Ctrl-C ends the process: during imports, some libraries turn it into other errors."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interruptible() -> None:
    """From here on, Ctrl-C raises KeyboardInterrupt; so does a batch system's or a closed terminal's signal."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ending, signal.default_int_handler)
