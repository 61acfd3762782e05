"""`python -m tests.fuzz TARGET COUNT [SEED]`: random inputs for one of the targets in `targets.run`."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.targets import FILES, run

if __name__ == "__main__":
    target, count, seed = sys.argv[1], int(sys.argv[2]), int((sys.argv[3:] or ["0"])[0])
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run(target, count, seed, Path(folder))
        left = [path.name for path in Path(folder).iterdir() if path.name not in FILES]
    assert left == [], left
    sys.stdout.write(
        f"{target}: {count:,} inputs from seed {seed}, nothing broke, {time.perf_counter() - begin:.0f} s\n"
    )
