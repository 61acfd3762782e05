"""The front door of the optimisation ladder: parse the command line, dispatch, return an exit code.

The only file that knows both the harness and the reports. Commands import late, so that each starts with what it needs.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import UsageError
from ladder.records.errors import ResultsError
from reports.errors import ReportError

if TYPE_CHECKING:
    from ladder.options import commands
    from reports.terminal.progress import LiveView

if __name__ == "__main__":
    # Ctrl-C during imports ends the process, since some libraries turn it into other errors; see `_interruptible`.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

ROOT = Path(__file__).parent
REFERENCE = ROOT / "results" / "reference"
PYTHON = ".venv/bin/python" if Path(sys.prefix) == ROOT / ".venv" else "python"  # what to type, as set-up leaves it
COMMAND_LINE = shlex.join(["python", "run_ladder.py", *sys.argv[1:]])  # recorded with what it measures
USAGE_ERROR, INTERRUPTED = 2, 130


def main(argv: Sequence[str]) -> int:
    """Do a command; returns 0 for success, 1 for a stage that failed or crashed, 2 for a request that cannot be met."""
    try:
        from ladder.options.parsers import parse

        command = parse(argv)
        return COMMANDS[command.name](command)
    except (UsageError, ResultsError, ReportError) as error:
        return _refuse(str(error))
    except ModuleNotFoundError as missing:
        return _refuse(f"{missing.name} is not installed; run `make ladder`, or activate .venv")
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}" if error.filename else f"{error.strerror or error}")
    except KeyboardInterrupt:
        print("run_ladder.py: interrupted", file=sys.stderr)
        return INTERRUPTED


def _refuse(reason: str) -> int:
    print(f"run_ladder.py: {reason}", file=sys.stderr)
    return USAGE_ERROR


def run(command: commands.Run | commands.Resume) -> int:
    """Measure stages in a new folder, or continue a stopped run."""
    from ladder.run.session import opened
    from reports.render import render_all
    from reports.terminal.progress import LiveView
    from reports.terminal.tables import print_results

    _interruptible()
    with LiveView() as view, opened(command, view, COMMAND_LINE) as (runner, folder):
        try:
            results = runner.run(view)
            render_all(results, folder)
        except KeyboardInterrupt:
            return _say_how_to_continue(view, "", folder)
    print_results(results, folder)
    return 1 if any(stage.status in ("failed", "crashed") for stage in results.stages) else 0


def study(command: commands.Study | commands.ResumeStudy) -> int:
    """Measure a study's points, or continue a stopped study."""
    from ladder.study.session import opened
    from reports.render import render_study
    from reports.terminal.progress import LiveView
    from reports.terminal.study import print_study

    _interruptible()
    with LiveView() as view, opened(command, view, COMMAND_LINE) as session:
        try:
            session.measure()
        except KeyboardInterrupt:
            return _say_how_to_continue(view, "study ", session.folder)
    results = render_study(session.folder)
    print_study(results, session.folder)
    session.check_measured()
    return 1 if results.broken else 0


def tune(command: commands.Tune) -> int:
    """Measure the launch shapes of a network's kernels, keep the times, and draw them."""
    from ladder.tune import tune
    from reports.terminal.progress import LiveView
    from reports.terminal.tuning import outcome, print_tuning, render_tuning

    _interruptible()
    with LiveView() as view:
        try:
            record, folder = tune(command, view, outcome, COMMAND_LINE)
        except KeyboardInterrupt:
            return INTERRUPTED  # the view has told how much is kept
    render_tuning(record, folder)
    print_tuning(record, folder)
    return 0


def report(command: commands.Report) -> int:
    """Render a run, a study or a tuning again."""
    from reports.render import report_again

    _interruptible()
    report_again(command.path)
    return 0


def compare(command: commands.Compare) -> int:
    """Judge each stage between two runs, or show several runs side by side."""
    from reports.compare.gate import compare_runs

    return compare_runs(command.runs, REFERENCE, command.format, command.threshold, command.strict)


def explain(command: commands.Explain) -> int:
    """Say where the time of a stage goes: in the named run, else in the newest that profiled it."""
    from ladder.records.run import load
    from ladder.run.entries import check_name
    from reports.compare.run_lookup import run_of
    from reports.facts.summary import heading
    from reports.terminal.explain import print_explain

    name, run = command.stage, command.run
    check_name(name, command.stage_file)
    path, results = (run, load(run)) if run else run_of(name, Path("runs"), REFERENCE)
    print_explain(results, name, f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}: {heading(results)}")
    return 0


def list_stages(command: commands.ListStages) -> int:
    """List every stage, its change, its needs, and whether it runs here."""
    from ladder.run.entries import listed
    from reports.terminal.tables import print_stage_list

    print_stage_list(listed(command.stage_file))
    return 0


def doctor(_: commands.Doctor) -> int:
    """Show what is installed, what is missing, and how to add it."""
    from ladder.doctor import doctor
    from reports.terminal.tables import print_doctor

    print_doctor(doctor())
    return 0


def limits(_: commands.Limits) -> int:
    """Measure what the GPU's primitives cost."""
    from ladder.machine.limits import measure_limits
    from reports.markdown.limits_section import print_limits

    _interruptible()
    print_limits(measure_limits())
    return 0


def readme(_: commands.Readme) -> int:
    """Write the recorded runs into the documents."""
    from ladder.study.study_file import read_study
    from reports.markdown.documents import update_documents

    _interruptible()
    plans = [read_study(path, "", "") for path in sorted((ROOT / "experiments").glob("*.toml"))]
    changed = update_documents(ROOT, REFERENCE, plans)
    print(f"README.md and docs/ {'are now' if changed else 'were'} up to date")
    return 0


def _say_how_to_continue(view: LiveView, command: str, folder: Path) -> int:
    view.note(f"interrupted; continue with: {PYTHON} run_ladder.py {command}--resume {shlex.quote(str(folder))}")
    return INTERRUPTED


def _interruptible() -> None:
    """From here on, Ctrl-C raises KeyboardInterrupt; so does a batch system's or a closed terminal's signal."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ending, signal.default_int_handler)


COMMANDS: dict[str, Callable[..., int]] = {
    body.__name__.removesuffix("_stages"): body
    for body in (run, study, report, compare, explain, list_stages, doctor, tune, limits, readme)
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
