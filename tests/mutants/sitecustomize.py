"""Notes which test calls which function, in every process that a recording by `tests.mutants` starts."""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType

ROOMS = tuple(os.environ.get("MUTANTS_ROOMS", "no room").split(":"))
file = os.open(os.environ.get("MUTANTS_CALLS", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
seen = set[str]()


def note(frame: FrameType, event: str, arg: object) -> None:
    """Append the test and the function at its first call: later, a signal may end the process."""
    if frame.f_code.co_filename.startswith(ROOMS):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        line = f"{test}\t{frame.f_code.co_filename}\t{frame.f_code.co_firstlineno}\n"
        if line not in seen:
            seen.add(line)
            os.write(file, line.encode())


sys.settrace(note)
threading.settrace(note)
