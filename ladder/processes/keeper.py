"""Keeps one command: `python -m ladder.processes.keeper PARENT ENDING COMMAND ...` ends all that it leaves behind.

SIGTERM ends the command. The exit code, or the signal, is the command's; the file ENDING says what it left behind.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from common.process_group import adopt_orphans, die_with_parent, kill_group
from ladder.processes.supervised import Supervised


def main(parent: int, ending: Path, command: list[str]) -> int:
    """Run the command until it ends; returns its exit code, or ends by the signal that ended it."""
    die_with_parent(parent)
    adopt_orphans()
    kept = Supervised(lambda: _become(command), sys.stdout.fileno())
    signal.signal(signal.SIGTERM, lambda *_: kill_group(kept.id))
    code = kept.wait(ending)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has left its own
        with suppress(OSError):  # SIGKILL has no other handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _become(command: list[str]) -> NoReturn:
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
