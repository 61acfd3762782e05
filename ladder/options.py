"""The options of a run, and what they may be."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn, get_args

from common.errors import UsageError
from ladder.profile import nsys
from ladder.profile_data import Tool

EPILOG = """\
other commands:
  profile         run stages briefly, and profile them: profile --stages cuda-graph --tool nsys
  limits          measure what the GPU's primitives cost: a launch, a graph's node, a barrier, bandwidths
  report PATH     render a results.json (or a run's folder) again: table, report.md, figures; needs no GPU
  readme          write the recorded runs' table and figures into README.md

examples:
  python run_ladder.py --stages all                         softmax regression on MNIST, every stage
  python run_ladder.py --stages naive..cublas --hidden 256  three rungs on an MLP with one hidden layer
  python run_ladder.py --resume runs/20260101-120000        go on with a run that was interrupted
"""


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage above it."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        raise UsageError(f"{message}; see --help")


def ladder_parser() -> argparse.ArgumentParser:
    """Every option of a run."""
    parser = OneLineParser(
        prog="run_ladder.py",
        description="Train the same small network in every stage of the ladder, time each, check that all compute the "
        "same thing, and report what each optimisation is worth.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = parser.add_argument_group("what to run")
    what.add_argument(
        "--stages",
        default="all",
        help="all, ladder, references, memory, data, NAME,NAME or FROM..TO (default: all, without memory and data)",
    )
    what.add_argument("--list", action="store_true", help="list every stage, what it changes and whether it runs here")
    what.add_argument("--doctor", action="store_true", help="say what is installed, what is missing and how to add it")
    what.add_argument(
        "--explain", metavar="STAGE", help="say where the time of a stage goes, from the run in --out or the newest one"
    )
    what.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with the run in this folder")

    problem = parser.add_argument_group("the problem")
    problem.add_argument(
        "--hidden", type=_hidden, default=(), metavar="N,...", help="hidden layers (default: none, softmax regression)"
    )
    problem.add_argument("--batch-size", type=int, default=128, metavar="N", help="images in a step (default: 128)")
    problem.add_argument("--learning-rate", type=float, default=0.1, metavar="X", help="of plain SGD (default: 0.1)")
    problem.add_argument("--epochs", type=int, default=20, metavar="N", help="in each training run (default: 20)")
    problem.add_argument("--seed", type=int, default=0, metavar="N", help="of parameters and image order (default: 0)")
    problem.add_argument(
        "--metrics-every", type=int, default=10, metavar="N", help="epochs between sparse metrics (default: 10)"
    )
    problem.add_argument(
        "--data-dir", type=Path, metavar="FOLDER", help="IDX files (default: $LADDER_DATA_DIR, the cache, a download)"
    )

    how = parser.add_argument_group("how to measure")
    how.add_argument("--rounds", type=int, default=2, metavar="N", help="fresh processes for each stage (default: 2)")
    how.add_argument("--repeats", type=int, default=2, metavar="N", help="timed runs in each process (default: 2)")
    how.add_argument(
        "--warmups", type=int, default=1, metavar="N", help="untimed runs of half their length before them (1)"
    )
    how.add_argument(
        "--budget", type=float, default=5.0, metavar="S", help="seconds to measure a stage for; slow ones do less (5)"
    )
    how.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="seconds until a process counts as hung (300)"
    )
    how.add_argument(
        "--profile",
        "--tool",
        type=_tools,
        default=["cupti"],
        metavar="TOOL,...",
        help="nsys, cupti, nsys,cupti, auto or none: profile what passed, once it is timed (default: cupti)",
    )
    how.add_argument("--out", type=Path, metavar="FOLDER", help="where the results go (default: runs/<time>)")
    return parser


def _hidden(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(width) for width in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: must be layer sizes such as 256 or 128,128,128") from None


def _tools(text: str) -> list[Tool]:
    """The profilers that `--profile` asks for."""
    if text == "none":
        return []
    if text == "auto":
        return ["nsys"] if nsys.find() else ["cupti"]
    known = get_args(Tool)
    wanted = text.split(",")
    if unknown := [tool for tool in wanted if tool not in known]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r}: must be {', '.join(known)}, auto or none")
    return [tool for tool in known if tool in wanted]
