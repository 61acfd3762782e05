"""Random inputs for the targets in `targets.run`: one for each seed, which the error of a failure names.

`python -m tests.fuzz TARGET COUNT [SEED]` feeds one target; `--seconds SECONDS` feeds all in turn, by seeds drawn anew.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.targets import COUNTS, FILES, run

TURNS = 10  # of a test's inputs, so that every target has its turn in some seconds


def feed(target: str, count: int, seed: int) -> None:
    """Feed one target, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run(target, count, seed, Path(folder))
        left = [path.name for path in Path(folder).iterdir() if path.name not in FILES]
    assert left == [], left


def main(arguments: list[str]) -> None:
    """Feed what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", choices=COUNTS)
    parser.add_argument("count", nargs="?", type=int, default=1000)
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args(arguments)
    fed, begin = Counter[str](), time.monotonic()
    if options.target:
        feed(options.target, options.count, options.seed)
        fed[options.target] = options.count
    while time.monotonic() < begin + options.seconds:
        for target, count in COUNTS.items():
            feed(target, count // TURNS, secrets.randbits(40))
            fed[target] += count // TURNS
    told = ", ".join(f"{target} {count:,}" for target, count in fed.items())
    sys.stdout.write(f"inputs: {told}; nothing broke, {time.monotonic() - begin:.0f} s\n")


if __name__ == "__main__":
    main(sys.argv[1:])
