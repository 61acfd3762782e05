"""The command line of the optimisation ladder: parse, run, save, render.

The only file that knows both the harness and the reports.
"""

from __future__ import annotations

import argparse
import secrets
import shlex
import signal
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile

if __name__ == "__main__":
    # Ctrl-C while libraries are imported just ends: some of them make other errors of it, and nothing is begun yet.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

try:
    import msgspec

    from common.dataset import load_dataset
    from common.errors import UsageError
    from common.problem import Problem
    from ladder import environment
    from ladder.doctor import doctor
    from ladder.limits import measure_limits
    from ladder.lock import alone_in
    from ladder.options import OneLineParser, compare_parser, ladder_parser
    from ladder.profile_data import Tool
    from ladder.results import Results, ResultsError, Settings, load
    from ladder.runner import Runner
    from ladder.spec import check_fits, check_needs, check_settings, describe_problem
    from reports.compare import print_comparison
    from reports.console import print_doctor, print_results, print_stage_list
    from reports.explain import ExplainError, print_explain
    from reports.limits import print_limits
    from reports.live import LiveView
    from reports.machines import compare_machines
    from reports.named_runs import named_runs
    from reports.readme import ReadmeError, update_readme
    from reports.render import render_all
    from reports.summary import heading
    from reports.verdicts import CannotCompareError, compare
    from stages.registry import Entry, load_all, load_own, select
except ModuleNotFoundError as missing:
    print(f"run_ladder.py: {missing.name} is not installed; run `make ladder`, or activate .venv", file=sys.stderr)
    sys.exit(2)

ROOT = Path(__file__).parent
PYTHON = ".venv/bin/python" if Path(sys.prefix) == ROOT / ".venv" else "python"  # what to type, as set-up leaves it
USAGE_ERROR, INTERRUPTED = 2, 130


def main(argv: list[str]) -> int:
    """Run a command; returns the exit code: 0 all well, 1 a stage failed or crashed, 2 not to be done as asked."""
    try:
        if argv[:1] == ["report"]:
            return report(argv[1:])
        if argv[:1] == ["compare"]:
            return compare_runs(argv[1:])
        if argv[:1] == ["limits"]:
            return limits(argv[1:])
        if argv[:1] == ["profile"]:
            if any(word.partition("=")[0] == "--resume" for word in argv):
                raise UsageError("profile --resume: a run that is there is profiled by --resume FOLDER --profile nsys")
            return ladder(["--rounds=1", "--repeats=1", "--profile=auto", *argv[1:]])
        if argv[:1] == ["readme"]:
            return readme(argv[1:])
        return ladder(argv)
    except (UsageError, ResultsError, ReadmeError, ExplainError, CannotCompareError) as error:
        print(f"run_ladder.py: {error}", file=sys.stderr)
        return USAGE_ERROR
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"run_ladder.py: {where}{error.strerror or error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        print("run_ladder.py: interrupted", file=sys.stderr)
        return INTERRUPTED


def ladder(argv: list[str]) -> int:
    """Run the ladder, or list what there is."""
    parser = ladder_parser()
    options = parser.parse_args(argv)
    entries = load_all()
    own = load_own(options.stage_file, entries)
    check_needs(own.values())
    entries |= own
    options.stages = ",".join([options.stages, *own])
    if options.list:
        print_stage_list([_list_row(entry) for entry in entries.values()])
        return 0
    if options.doctor:
        print_doctor(doctor())
        return 0
    if options.explain:
        select(options.explain, entries)  # refuses a name that is none, with the nearest ones
        return explain(options)
    with LiveView() as view, ExitStack() as held:
        if options.resume:
            held.enter_context(alone_in(options.resume if options.resume.is_dir() else options.resume.parent))
            runner, folder = _resumed(options, _given(parser, argv), entries, view)
        else:
            runner, folder = _begun(options, entries, view)
            held.enter_context(alone_in(folder))
        try:
            results = runner.run(view)
            render_all(results, folder)
        except KeyboardInterrupt:
            view.note(f"interrupted; go on with: {PYTHON} run_ladder.py --resume {shlex.quote(str(folder))}")
            return INTERRUPTED
    print_results(results, folder)
    return 1 if any(stage.status in ("failed", "crashed") for stage in results.stages) else 0


def report(argv: list[str]) -> int:
    """Render a results file again."""
    parser = OneLineParser(prog="run_ladder.py report", description="Render a results.json again; needs no GPU.")
    parser.add_argument("path", type=Path, help="a results.json, or the folder that holds one")
    path: Path = parser.parse_args(argv).path
    results = _load(path)
    folder = path if path.is_dir() else path.parent
    render_all(results, folder)
    print_results(results, folder)
    return 0


def compare_runs(argv: list[str]) -> int:
    """Tell what became of each stage between two runs, or show several side by side."""
    options = compare_parser().parse_args(argv)
    if not 0 <= options.threshold < 1:
        raise UsageError(f"threshold {options.threshold:g}: must be a share from 0% to below 100%, such as 2%")
    runs = named_runs(options.runs, ROOT / "results" / "reference")
    if len(runs) > 2:
        print_comparison(compare_machines(runs), options.format)
        return 0
    (base, base_run), (new, new_run) = runs
    found = compare(base_run, new_run, (base, new), threshold=options.threshold, strict=options.strict)
    print_comparison(found, options.format)
    return found.exit_code


def readme(argv: list[str]) -> int:
    """Bring README.md up to date with the recorded runs."""
    parser = OneLineParser(prog="run_ladder.py readme", description="Write the recorded runs into README.md.")
    parser.parse_args(argv)
    changed = update_readme(ROOT / "README.md", ROOT / "results" / "reference")
    print("README.md is now up to date" if changed else "README.md was up to date")
    return 0


def limits(argv: list[str]) -> int:
    """Measure what the GPU can do at best."""
    parser = OneLineParser(prog="run_ladder.py limits", description="Measure what the GPU's primitives cost.")
    parser.parse_args(argv)
    print_limits(measure_limits())
    return 0


def explain(options: argparse.Namespace) -> int:
    """Say where the time of one stage goes: in the run that is named, else in the newest one that has it profiled."""
    name: str = options.explain
    where: list[Path] = [options.out] if options.out else [*_newest_runs(), *_recorded_runs()]
    for path in where:
        try:
            results = _load(path)
        except UsageError:
            if options.out:
                raise
            continue  # some other run's file, which nobody asked for
        stage = next((stage for stage in results.stages if stage.name == name), None)
        if options.out or (stage and stage.profile and stage.status == "passed"):
            shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            print_explain(results, name, f"{shown}: {heading(results)}")
            return 0
    raise UsageError(f"explain {name}: no run here has profiled it; run it on a machine with a GPU, which it must use")


def _newest_runs() -> list[Path]:
    """The folders in runs/ with results, the newest first."""
    found = Path("runs").glob("*/results.json")
    return [path.parent for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]


def _recorded_runs() -> list[Path]:
    return [path.parent for path in sorted((ROOT / "results" / "reference").glob("*/*/results.json"), reverse=True)]


def _list_row(entry: Entry) -> tuple[str, str, str, str]:
    stage = entry.stage
    reason = environment.missing(stage.needs)
    needs = ", ".join(stage.needs) or "nothing"
    return stage.name, stage.changed or stage.title, needs, "yes" if reason is None else f"no: {reason}"


def _begun(options: argparse.Namespace, entries: dict[str, Entry], view: LiveView) -> tuple[Runner, Path]:
    """A run of its own, in a folder of its own."""
    chosen = select(options.stages, entries)
    settings = Settings(
        options.rounds,
        options.repeats,
        options.warmups,
        options.budget,
        options.timeout,
        options.profile,
        options.remeasure,
        options.precision,
        salt=secrets.randbits(31),
    )
    if options.time_cap is not None:
        settings = msgspec.structs.replace(settings, time_cap_s=options.time_cap)
    if options.time_cap is not None and options.precision is None:
        raise UsageError(f"--time-cap {options.time_cap:g}: ends what --precision asks for; give that, too")
    check_settings(settings)
    # Checked before the data is looked for, which may take a download; its sizes are put in below.
    asked = Problem(
        inputs=1,
        classes=1,
        hidden=options.hidden,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        epochs=options.epochs,
        seed=options.seed,
        metrics_every=options.metrics_every,
    )
    folder: Path = options.out or Path("runs") / datetime.now().strftime("%Y%m%d-%H%M%S")
    if (folder / "results.json").exists():
        raise UsageError(f"{folder}: holds a results.json; go on with --resume {folder}, or choose another --out")
    dataset = load_dataset(data_dir=options.data_dir, seed=options.seed, progress=view.download)
    problem = Problem(**{**asked.__dict__, "inputs": dataset.train.images.shape[1], "classes": dataset.classes})
    check_fits(problem, dataset)
    _make(folder)  # last, so that a run that is refused leaves none behind
    results = Results(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=shlex.join(["python", "run_ladder.py", *sys.argv[1:]]),
        environment=environment.describe(),
        problem=describe_problem(problem, dataset),
        settings=settings,
        stages=[],
    )
    return Runner(results, chosen, dataset, problem, folder), folder


def _make(folder: Path) -> None:
    """Make a run's folder, or refuse it before anything is measured that could then not be kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"--out {folder}: cannot be written to ({error.strerror}); choose another folder") from error


def _load(path: Path) -> Results:
    """The results that a user named."""
    try:
        return load(path)
    except ResultsError as error:
        raise UsageError(f"{error}; name a results.json of this program, or the folder that holds one") from error


def _given(parser: argparse.ArgumentParser, argv: list[str]) -> dict[str, object]:
    """The options that the user wrote, those that equal their defaults included."""
    blank = argparse.Namespace(**dict.fromkeys(vars(parser.parse_args([]))))
    return {name: value for name, value in vars(parser.parse_args(argv, blank)).items() if value is not None}


def _resumed(
    options: argparse.Namespace, given: dict[str, object], entries: dict[str, Entry], view: LiveView
) -> tuple[Runner, Path]:
    """A run that stopped, with the settings it began with."""
    for name, value in given.items():
        # `make ladder` always says `--stages all`, which for a resumed run are all of its own.
        if name not in ("resume", "data_dir", "profile", "stage_file") and (name, value) != ("stages", "all"):
            text = ",".join(map(str, value)) if isinstance(value, tuple) else value
            option = f"--{name.replace('_', '-')} {text}"
            raise UsageError(f"{option}: a resumed run keeps its settings; leave it out, or start anew")
    folder: Path = options.resume if options.resume.is_dir() else options.resume.parent
    results = _load(options.resume)
    was = results.problem
    dataset = load_dataset(data_dir=options.data_dir, seed=was.seed, progress=view.download)
    problem = Problem(
        inputs=was.inputs,
        classes=was.classes,
        hidden=tuple(was.hidden),
        batch_size=was.batch_size,
        learning_rate=was.learning_rate,
        epochs=was.epochs,
        seed=was.seed,
        metrics_every=was.metrics_every,
    )
    if describe_problem(problem, dataset).dataset_sha256 != was.dataset_sha256:
        raise UsageError(f"{folder}: was measured on {was.dataset}, found here is {dataset.name}; give its --data-dir")
    now = environment.describe()
    for what in ("gpu", "cpu", "libraries", "code"):
        then, today = (_without_dirt(found.get(what)) for found in (results.environment, now))
        if then != today:
            raise UsageError(f"{folder}: was measured with another {what} than there is now; measure anew with --out")
    unknown = [stage.name for stage in results.stages if stage.name not in entries]
    if unknown:
        raise UsageError(
            f"{folder}: measured {unknown[0]}, which this version does not have; start anew, or give its --stage-file"
        )
    chosen = [entries[stage.name] for stage in results.stages]
    if "profile" in given:
        if options.profile != ["nsys"]:
            raise UsageError(
                "--profile: a run that is there can only be given nsys; cupti records inside of what is timed"
            )
        tools: list[Tool] = [*(tool for tool in results.settings.profile if tool != "nsys"), "nsys"]
        settings = msgspec.structs.replace(results.settings, profile=tools)
        results = msgspec.structs.replace(results, settings=settings)
    return Runner(results, chosen, dataset, problem, folder), folder


def _without_dirt(found: object) -> object:
    """What an environment says, less whether files differ from the commit: reports and notes do, while one measures."""
    return {k: v for k, v in found.items() if k != "uncommitted_changes"} if isinstance(found, dict) else found


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a batch system or a closed terminal: as Ctrl-C
        signal.signal(ending, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
