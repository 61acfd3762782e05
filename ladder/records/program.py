"""The words that start this program, in messages and reports."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ".venv/bin/python" if Path(sys.prefix) == ROOT / ".venv" else "python"  # as set-up leaves it
PROGRAM = f"{PYTHON} run_ladder.py"
