"""Atomic writes and visible text, for the reports, which import records alone."""

from __future__ import annotations

import sys
from pathlib import Path

from common.files import atomic_write as atomic_write
from common.streams import visible as visible

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ".venv/bin/python" if Path(sys.prefix) == ROOT / ".venv" else "python"  # as set-up leaves it
PROGRAM = f"{PYTHON} run_ladder.py"
