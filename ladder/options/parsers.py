"""The options of a run, and what they may be."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn, get_args

from common.errors import UsageError
from ladder.profile import nsys
from ladder.records.profile import Tool

EPILOG = """\
other commands:
  profile         run stages briefly, and profile them: profile --stages cuda-graph --tool nsys
  study FILE      run a study, a TOML file that varies one or two settings: study experiments/hidden-size.toml
  compare A B     say what became faster or slower: results files, folders, or reference:h200; gates a CI
  tune            measure the naive kernels' launch shapes for a network: tune --hidden 256; `--stages tuned` uses them
  limits          measure what the GPU's primitives cost: a launch, a graph's node, a barrier, bandwidths
  report PATH     render a run or a study again, by its folder or results.json: report.md, figures; needs no GPU
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
        help="all, ladder, references, memory, data, shapes, NAME,NAME or FROM..TO (default: all but the side rungs)",
    )
    what.add_argument(
        "--stage-file",
        type=a_path,
        action="append",
        default=[],
        metavar="FILE",
        help="a stage of your own, run beside the others; again for one more (docs/your-own-stage.md)",
    )
    what.add_argument("--list", action="store_true", help="list every stage, what it changes and whether it runs here")
    what.add_argument("--doctor", action="store_true", help="say what is installed, what is missing and how to add it")
    what.add_argument(
        "--explain", metavar="STAGE", help="say where the time of a stage goes, from the run in --out or the newest one"
    )
    what.add_argument("--resume", type=a_path, metavar="FOLDER", help="go on with the run in this folder")
    what.add_argument(
        "--config",
        type=a_path,
        metavar="FILE",
        help="TOML with these options (batch_size = 32); the command line wins",
    )

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
        "--validate-every",
        type=int,
        default=0,
        metavar="N",
        help="loss and accuracy on the test images after every so many epochs, within the time (default: 0, never)",
    )
    problem.add_argument(
        "--max-steps", type=int, metavar="N", help="steps in an epoch at most, of the first images (default: all)"
    )
    problem.add_argument(
        "--data-dir",
        type=a_path,
        metavar="FOLDER",
        help="IDX files (default: $LADDER_DATA_DIR, the cache, a download)",
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
        "--remeasure",
        type=int,
        default=2,
        metavar="N",
        help="times a process is measured again, at most, when clocks or others disturbed it (2)",
    )
    how.add_argument(
        "--at-once",
        type=int,
        default=1,
        metavar="N",
        help="processes side by side, to check what stages compute: none is timed or profiled then (1)",
    )
    how.add_argument(
        "--precision",
        type=_share,
        metavar="P%",
        help="add rounds until every stage's 95%% interval is this narrow, such as 1%%",
    )
    how.add_argument(
        "--time-cap", type=float, metavar="S", help="seconds after which --precision adds no more rounds (600)"
    )
    how.add_argument(
        "--lock-clocks",
        type=int,
        metavar="MHZ",
        help="hold the GPU's SM clock there while the run lasts; takes an administrator's permission",
    )
    how.add_argument(
        "--profile",
        "--tool",
        type=_tools,
        metavar="TOOL,...",
        help="nsys, cupti, nsys,cupti, auto or none: profile what passed, once it is timed (default: cupti)",
    )
    how.add_argument(
        "--nsys-stages",
        metavar="STAGES",
        help="the stages that nsys sees, as for --stages: it takes some seconds for each (default: all that passed)",
    )
    how.add_argument(
        "--curve-steps",
        type=int,
        default=0,
        metavar="N",
        help="record loss and accuracy every so many steps, in one more run that is not timed (default: 0, do not)",
    )
    how.add_argument("--out", type=a_path, metavar="FOLDER", help="where the results go (default: runs/<time>)")
    return parser


def compare_parser() -> argparse.ArgumentParser:
    """The options of a comparison."""
    parser = OneLineParser(
        prog="run_ladder.py compare",
        description="Say of each stage whether it became FASTER or SLOWER from one run to another, stayed the SAME, or "
        "whether that is AMBIGUOUS; show more than two runs side by side. Exit status: 0 no regression, 1 a "
        "regression, 2 cannot compare.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "runs",
        type=_run_name,
        nargs="+",
        metavar="RUN",
        help="a results.json, a run's folder, or reference:GPU[/PROBLEM] for a recorded run; the first is the base",
    )
    parser.add_argument(
        "--threshold", type=_share, default=0.02, metavar="P%", help="how much slower is a regression (default: 2%%)"
    )
    parser.add_argument(
        "--format", choices=("text", "markdown", "json"), default="text", help="what to print (default: text)"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 2 where a regression cannot be ruled out, or a stage of the first run is not in the new one",
    )
    return parser


def _hidden(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(width) for width in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: must be layer sizes such as 256 or 128,128,128") from None


def a_path(text: str) -> Path:
    """A path, which an unset variable in somebody's script is not: as a path it would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("'': must be the name of a file or folder")
    return Path(text)


def _run_name(text: str) -> str:
    a_path(text)
    return text


def _share(text: str) -> float:
    """A share as a percentage or a plain number: `1%` and `0.01` are the same."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a share such as 1%") from None


def _tools(text: str) -> list[Tool]:
    try:
        return tools(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def _names(text: str) -> list[str]:
    return text.split(",")


def profilers(options: argparse.Namespace) -> list[Tool]:
    """Those that a run is to have: CUPTI where nobody said, and where something is timed."""
    if options.profile is None:
        return ["cupti"] if options.at_once == 1 else []
    return list(options.profile)


def tools(text: str) -> list[Tool]:
    """The profilers that `--profile` asks for; ValueError says what may be asked for."""
    if text == "none":
        return []
    if text == "auto":
        return ["nsys"] if nsys.find() else ["cupti"]
    known = get_args(Tool)
    wanted = text.split(",")
    if any(tool not in known for tool in wanted):
        raise ValueError(f"must be {', '.join(known)}, auto or none")
    return [tool for tool in known if tool in wanted]


def tune_parser() -> argparse.ArgumentParser:
    """The options of `tune`."""
    parser = OneLineParser(
        prog="run_ladder.py tune",
        description="Measure the bottom rung's matrix product in many launch shapes, for this GPU and the "
        "sizes of this network, keep the times in the cache, where the rung `tuned` finds them, and draw a heat map.",
        allow_abbrev=False,
    )
    parser.add_argument("--hidden", type=_hidden, default=(), metavar="N,...", help="hidden layers (default: none)")
    parser.add_argument("--batch-size", type=int, default=128, metavar="N", help="images in a step (default: 128)")
    parser.add_argument("--again", action="store_true", help="measure anew what is in the cache already")
    parser.add_argument("--out", type=a_path, metavar="FOLDER", help="where the heat map goes (runs/tune-<time>)")
    parser.add_argument(
        "--data-dir",
        type=a_path,
        metavar="FOLDER",
        help="IDX files, as for an ordinary run; only their sizes count",
    )
    return parser


def study_parser() -> argparse.ArgumentParser:
    """The options of `study`."""
    parser = OneLineParser(
        prog="run_ladder.py study",
        description="Run the ladder at every point of a study, which varies one or two settings; each is a run.",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=a_path, nargs="?", help="a study as TOML, such as experiments/hidden-size.toml")
    parser.add_argument("--resume", type=a_path, metavar="FOLDER", help="go on with the study in this folder")
    parser.add_argument("--out", type=a_path, metavar="FOLDER", help="where it goes (default: runs/<name>-<time>)")
    parser.add_argument("--data-dir", type=a_path, metavar="FOLDER", help="IDX files, as for an ordinary run")
    parser.add_argument(
        "--points", type=_names, metavar="NAME,...", help="only these points; the others wait for --resume"
    )
    shorter = parser.add_argument_group("other than the file says, to try a study out")
    shorter.add_argument("--stages", help="as for an ordinary run")
    shorter.add_argument("--rounds", type=int, metavar="N", help="fresh processes for each stage")
    shorter.add_argument("--repeats", type=int, metavar="N", help="timed runs in each process")
    shorter.add_argument("--remeasure", type=int, metavar="N", help="times a disturbed process is measured again")
    shorter.add_argument("--budget", type=float, metavar="S", help="seconds to measure a stage for")
    return parser
