"""The front door of the optimisation ladder: parse the command line, dispatch, return an exit code.

The only file that knows both the harness and the reports. Commands import late.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

NOT_SET_UP = "is not installed; run `make setup`, then `source .venv/bin/activate`"
HIDDEN = "this program's own modules are hidden by PYTHONSAFEPATH, -P or -I; leave it out"
try:
    from common.errors import UsageError
    from common.files import explained, of_system
    from common.signals import INTERRUPTED, end_at_ctrl_c, interruptible
    from common.streams import accept_any_text, drop_output, printable
    from common.variables import clear
    from ladder.records.foreign import ResultsError
    from reports.report_error import ReportError
except ModuleNotFoundError as missing:  # by a Python outside of .venv
    print(f"run_ladder.py: {HIDDEN if missing.name == 'common' else f'{missing.name} {NOT_SET_UP}'}", file=sys.stderr)
    raise SystemExit(2) from None

if TYPE_CHECKING:
    from ladder.options import commands
    from ladder.records.run import Results

if __name__ == "__main__":
    end_at_ctrl_c()

ROOT = Path(__file__).parent
REFERENCE = ROOT / "results" / "reference"
# Recorded with what it measures, in a file of UTF-8: a terminal of ASCII alone hands other characters over as bytes.
COMMAND_LINE = os.fsencode(shlex.join(["python", "run_ladder.py", *sys.argv[1:]])).decode(errors="replace")


def main(argv: Sequence[str]) -> int:
    """Do a command; returns 0 for success, 1 for a stage that failed or crashed, 2 for a request that cannot be met."""
    accept_any_text()
    if sys.flags.optimize > 1:
        return _refuse("PYTHONOPTIMIZE=2 or -OO drops the stages' descriptions; leave it out")
    if os.environ.get("COLUMNS") == "0":  # as if it were not set
        del os.environ["COLUMNS"]
    if cleared := clear():
        print(f"run_ladder.py: goes on without {', '.join(cleared)}, which stages do not expect", file=sys.stderr)
    try:
        from ladder.options.parsers import parse

        return COMMANDS[(command := parse(argv)).name](command)
    except (UsageError, ResultsError, ReportError) as error:
        return _refuse(str(error))
    except ModuleNotFoundError as missing:
        return _refuse(f"{missing.name} {NOT_SET_UP}")
    except BrokenPipeError:  # the reader, such as `head`, has what it wants
        return drop_output()
    except (OSError, MemoryError, RuntimeError) as error:
        if (told := of_system(error)) is None:
            raise
        return _refuse(explained(told))
    except KeyboardInterrupt:
        return _refuse("interrupted", INTERRUPTED)


def _refuse(reason: str, status: int = 2) -> int:
    print(f"run_ladder.py: {printable(reason)}", file=sys.stderr)
    return status


def run(command: commands.Run | commands.Resume) -> int:
    """Measure stages in a new folder, or continue a stopped run."""
    from ladder.options.commands import Run
    from ladder.options.continuation import interrupted, resumable
    from ladder.run.preflight import leaves_to_rank_0
    from ladder.run.session import dry_run, opened
    from reports.render import print_results, render_all
    from reports.screens.plan import plan_screen
    from reports.terminal.progress import LiveView
    from reports.writers.write import write

    if isinstance(command, Run) and leaves_to_rank_0(command.options.gpus):
        return 0
    if isinstance(command, Run) and command.dry_run:
        with LiveView() as view:
            planned = dry_run(command, Path("runs"), view)
        return write(plan_screen(planned))
    interruptible()
    with LiveView() as view, opened(command, view, COMMAND_LINE) as (runner, folder), resumable(command, folder):
        try:
            results = runner.run(view)
            render_all(results, folder, REFERENCE)
        except KeyboardInterrupt:
            view.end()
            if any(stage.processes for stage in runner.results.stages):  # in a second Ctrl-C, this is left out
                render_all(runner.results, folder, REFERENCE)
                print_results(runner.results, folder, recorded=REFERENCE)
            return interrupted(command, folder, view.note)
    print_results(results, folder, recorded=REFERENCE)
    return 1 if any(stage.status in ("failed", "crashed") for stage in results.stages) else 0


def check(command: commands.CheckStage) -> int:
    """Say whether a stage is right, without timing it; 1 if it is wrong."""
    from ladder.run.check import checked
    from reports.screens.check import check_screen
    from reports.terminal.progress import LiveView
    from reports.writers.console import aside
    from reports.writers.write import write

    interruptible()
    with LiveView(aside() if command.form != "table" else None) as view:
        checked_stage = checked(command, view)
    write(check_screen(checked_stage), command.form)
    return 0 if checked_stage.status == "passed" else 1


def grade(command: commands.Grade) -> int:
    """Grade a folder of submissions."""
    from ladder.run.grade import graded
    from reports.screens.check import grade_screen
    from reports.terminal.progress import LiveView
    from reports.writers.console import aside
    from reports.writers.write import write

    interruptible()
    with LiveView(aside()) as view:
        found = graded(command, view)
    return write(grade_screen(found), command.form)


def study(command: commands.MeasureStudy | commands.ResumeStudy) -> int:
    """Measure a study's points, or continue a stopped study."""
    from ladder.options.continuation import interrupted, resumable
    from ladder.study.opening import opened
    from reports.render import print_study, render_study
    from reports.terminal.progress import LiveView

    interruptible()
    with LiveView() as view, opened(command, view, COMMAND_LINE) as session, resumable(command, session.folder):
        try:
            studies = {folder: render_study(folder) for folder in session.measure()}
        except KeyboardInterrupt:
            return interrupted(command, session.folder, view.note)
    for folder, results in studies.items():
        print_study(results, folder)
    session.check_measured()
    return 1 if any(results.broken for results in studies.values()) else 0


def torch(command: commands.Torch) -> int:
    """Climb the ladder with a PyTorch model of the user's, or print an example of one; 1 if a rung is wrong."""
    from ladder.torch_model.climb import climbed, plan
    from reports.render import print_torch, render_torch
    from reports.screens.torch import plan_screen
    from reports.terminal.torch_progress import TorchView
    from reports.writers.console import aside
    from reports.writers.write import write

    if command.example:
        print((ROOT / "examples" / "torch" / f"{command.example}.py").read_text(encoding="utf-8"), end="")
        return 0
    if command.dry_run:
        interruptible()
        return write(plan_screen(**plan(command).shown), command.form)
    interruptible()
    with TorchView(aside() if command.form != "table" else None) as view:
        status, folder, results, script = climbed(command, view, COMMAND_LINE, render_torch)
    if results is not None:
        print_torch(results, folder, command.form)
        print(script, end="\n" if script else "", file=sys.stderr)
    return status


def report(command: commands.Report) -> int:
    """Render a run or a study again."""
    from reports.render import report_again

    interruptible()
    report_again(command.path, REFERENCE, command.form)
    return 0


def open_page(command: commands.Open) -> int:
    """Open the page of a run or a study in the browser."""
    from reports.render import show_page

    show_page(command.run, Path("runs"), REFERENCE)
    return 0


def compare(command: commands.Compare) -> int:
    """Judge each stage between two runs, or show several runs side by side."""
    from reports.compare.gate import compare_runs

    return compare_runs(command.runs, REFERENCE, command.shown_as, command.threshold, command.strict)


def explain(command: commands.Explain) -> int:
    """Say where the time of a stage goes: in the named run, else in the newest that profiled or timed it."""
    from ladder.run.entries import check_name
    from reports.compare.run_lookup import NotTimedError, run_to_explain
    from reports.render import explain_torch
    from reports.screens.rung import rung_screen
    from reports.writers.write import write

    if command.run is not None and explain_torch(command.run, command.stage, command.form):
        return 0
    if command.stage_file:
        check_name(command.stage, command.stage_file)
    try:
        name, path, results = run_to_explain(command.stage, command.run, Path("runs"), REFERENCE)
    except NotTimedError as error:  # runs know their own stages without files; one that none knows may be misspelt
        stage = check_name(command.stage, command.stage_file)
        of_several = " --gpus 2" if stage.takes_gpus else " --networks 8" if stage.is_fleet else ""
        raise NotTimedError(f"{error}{of_several}") from None
    return write(rung_screen(results, name, path, REFERENCE), command.form)


def list_stages(command: commands.ListStages) -> int:
    """List every stage, its change, its needs, and whether it runs here."""
    from ladder.machine.environment import how_to_get_gpu
    from ladder.run.entries import listed, network_listed
    from reports.screens.stage_list import stage_list_screen
    from reports.writers.write import write

    stages = listed(command.stage_file, command.hidden, command.batch_size)
    network = network_listed(command.hidden, command.batch_size)
    return write(stage_list_screen(stages, how_to_get_gpu(), network), command.form)


def advise(command: commands.Advise) -> int:
    """Say what each way to train a network should take, and whether to leave PyTorch; measure it if asked."""
    from ladder.run.outlook import measuring, outlooks, with_measured
    from reports.facts.advice import deciding
    from reports.figures.advice_figure import draw_advice
    from reports.screens.advise import advise_screen
    from reports.writers.write import write

    all_outlooks = outlooks(command)
    if command.measure:
        asked = measuring(command, [*(one.name for one in deciding(all_outlooks)), *all_outlooks.untold])
        all_outlooks = with_measured(all_outlooks, _measured(asked, as_table=command.form == "table"))
    if command.svg is not None:
        draw_advice(all_outlooks, command.svg)
    return write(advise_screen(all_outlooks), command.form)


def _measured(asked: commands.Run, *, as_table: bool) -> Results:
    """A run for another command; it is reported in its folder."""
    from ladder.run.session import opened
    from reports.render import render_all
    from reports.terminal.progress import LiveView
    from reports.writers.console import aside

    interruptible()
    with LiveView(None if as_table else aside()) as view, opened(asked, view, COMMAND_LINE) as (runner, folder):
        results = runner.run(view)
        render_all(results, folder, REFERENCE)
    return results


def doctor(command: commands.Doctor) -> int:
    """Show what is installed, what is missing, and how to add it."""
    from ladder.doctor import doctor
    from reports.screens.doctor import doctor_screen
    from reports.writers.write import write

    return write(doctor_screen(doctor()), command.form)


def limits(command: commands.MeasureLimits) -> int:
    """Measure what the primitives of the GPU cost."""
    from ladder.machine.limits import measure_limits
    from reports.screens.details import limits_screen
    from reports.writers.write import write

    interruptible()
    return write(limits_screen(measure_limits()), command.form)


def readme(_: commands.Readme) -> int:
    """Write the recorded runs into the documents."""
    from ladder.run.code_watch import code_today
    from ladder.study.study_file import read_study
    from reports.markdown.all_documents import update_documents

    interruptible()
    plans = [read_study(path, "", "") for path in sorted((ROOT / "experiments").glob("*.toml"))]
    print(f"Documents {'are now' if update_documents(ROOT, REFERENCE, plans, code_today()) else 'were'} up to date")
    return 0


COMMANDS: dict[str, Callable[..., int]] = {
    body.__name__.partition("_")[0]: body
    for body in (
        run, check, grade, study, torch, report, open_page, compare, explain, list_stages, advise, doctor, limits,
        readme,
    )
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
