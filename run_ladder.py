"""The command line of the optimisation ladder: parse, run, save, render.

The only file that knows both the harness and the reports.
"""

from __future__ import annotations

import argparse
import secrets
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile

if __name__ == "__main__":
    # Ctrl-C while libraries are imported just ends: some of them make other errors of it, and nothing is begun yet.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

try:
    import msgspec

    from common.data.dataset import load_dataset
    from common.errors import UsageError
    from common.problem import Problem
    from ladder.doctor import doctor
    from ladder.machine import environment
    from ladder.machine.clock_lock import locked_clocks
    from ladder.machine.limits import measure_limits
    from ladder.options.parsers import (
        OneLineParser,
        a_path,
        compare_parser,
        ladder_parser,
        profilers,
        study_parser,
        tune_parser,
    )
    from ladder.options.toml_file import options_of
    from ladder.records.limits import LimitsRecord
    from ladder.records.profile import Tool
    from ladder.records.run import Results, ResultsError, Settings, load
    from ladder.records.study import INDEX, Point, Study, as_found, load_study, save_study
    from ladder.records.tuning import TUNING, TuningRecord, load_tuning, save_tuning
    from ladder.run.lock import alone_in
    from ladder.run.preflight import check_fits, check_needs, check_settings, check_time_cap, cut, describe_problem
    from ladder.run.runner import Runner
    from ladder.run.sources import code_of
    from ladder.study.points import compile_points, due, measure_study, run_options
    from ladder.study.study_file import read_study, with_settings
    from ladder.tune import Tuning, name_of, open_gpu
    from reports.compare.many_runs import compare_machines
    from reports.compare.render import print_comparison
    from reports.compare.run_lookup import named_runs
    from reports.compare.verdicts import CannotCompareError, compare
    from reports.facts.summary import heading
    from reports.markdown.limits_section import print_limits
    from reports.markdown.method_limits import update_limits
    from reports.markdown.readme import ReadmeError, recorded_runs, update_readme
    from reports.markdown.readme_published import update_published
    from reports.render import render_all, render_study
    from reports.terminal.explain import ExplainError, print_explain
    from reports.terminal.progress import LiveView
    from reports.terminal.study import print_study
    from reports.terminal.tables import print_doctor, print_results, print_stage_list
    from reports.terminal.tuning import outcome, print_tuning, render_tuning
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
        if argv[:1] == ["study"]:
            return study(argv[1:])
        if argv[:1] == ["tune"]:
            return tune(argv[1:])
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
    if options.config:
        parser.set_defaults(**options_of(options.config))
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
            folder = options.resume if options.resume.is_dir() else options.resume.parent
            if (folder.parent / INDEX).exists():  # a point: its study measures it, or this run
                held.enter_context(alone_in(folder.parent))
            held.enter_context(alone_in(folder))
            runner, folder = _resumed(options, _given(parser, argv), entries, view)
        else:
            runner, folder = _begun(options, entries, view)
            held.enter_context(alone_in(folder))
            _refuse_begun(folder)  # once more: the data may have taken a download's time, and the folder another run
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
    parser.add_argument("path", type=a_path, help="a results.json, or the folder that holds one, or a study or tuning")
    path: Path = parser.parse_args(argv).path
    if path.name in (INDEX, TUNING):
        path = path.parent
    if (path / TUNING).exists():
        tuning = load_tuning(path)
        render_tuning(tuning, path)
        print_tuning(tuning, path)
        return 0
    if (path / INDEX).exists():
        print_study(render_study(path), path)
        return 0
    results = _load(path)
    folder = path if path.is_dir() else path.parent
    render_all(results, folder)
    print_results(results, folder)
    return 0


def study(argv: list[str]) -> int:
    """Measure a study's points, render it, and say how it went."""
    parser = study_parser()
    options = parser.parse_args(argv)
    entries = load_all()
    with LiveView() as view, ExitStack() as held:
        plan, folder = _resumed_study(options) if options.resume else _begun_study(options, entries, view)
        held.enter_context(alone_in(folder))
        if not options.resume:
            _refuse_begun_study(folder)  # once more, as for a run
        measure = partial(_measure_point, options.data_dir, entries, view, folder)
        wanted = due(plan, options.points)
        save_study(plan, folder)  # now, since compiling takes minutes, after which it has to be possible to go on
        try:
            _compile_points(plan, wanted, options.data_dir, entries, view, folder)
            measure_study(plan, folder, entries, measure, view.point, wanted)
        except KeyboardInterrupt:
            view.note(f"interrupted; go on with: {PYTHON} run_ladder.py study --resume {shlex.quote(str(folder))}")
            return INTERRUPTED
    shown = render_study(folder)
    print_study(shown, folder)
    points = load_study(folder).points
    if all(point.status == "skipped" for point in points if not wanted or point.name in wanted):
        raise UsageError(f"{folder}: no point could be measured; study.json says why of each")
    return 1 if shown.broken else 0


def _begun_study(options: argparse.Namespace, entries: dict[str, Entry], view: LiveView) -> tuple[Study, Path]:
    """A study of its own, checked at every point, in a folder of its own."""
    if options.file is None:
        raise UsageError("study: names no file; give one, such as experiments/hidden-size.toml, or --resume FOLDER")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    plan = read_study(options.file, shlex.join(["python", "run_ladder.py", *sys.argv[1:]]), now)
    due(plan, options.points)  # refused before there is a folder
    changed = {name: getattr(options, name) for name in ("stages", "rounds", "repeats", "remeasure", "budget")}
    plan = with_settings(plan, {name: value for name, value in changed.items() if value is not None})
    points = [run_options(point, entries) for point in plan.points]
    folder: Path = options.out or Path("runs") / f"{plan.name}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
    _refuse_begun_study(folder)
    # Refused now, and not at every point.
    for data_dir in dict.fromkeys(options.data_dir or point.data_dir for point in points):
        load_dataset(data_dir=data_dir, seed=0, progress=view.download)
    for mhz in {point.lock_clocks for point in points}:
        with locked_clocks(mhz, view.note):
            pass
    _make(folder)
    return plan, folder


def _resumed_study(options: argparse.Namespace) -> tuple[Study, Path]:
    """A study that stopped, on the machine on which it began."""
    for name, value in vars(options).items():
        if value is not None and name not in ("resume", "data_dir", "points"):
            raise UsageError(f"study --resume: a resumed study keeps its settings; leave out {name}, or start anew")
    folder: Path = options.resume
    plan = as_found(load_study(folder), folder)
    measured = next((path for point in plan.points if (path := folder / point.name / "results.json").exists()), None)
    if measured is not None:
        _check_same_machine(_load(measured), folder)
    return plan, folder


def _compile_points(
    plan: Study,
    wanted: Sequence[str],
    data_dir: Path | None,
    entries: dict[str, Entry],
    view: LiveView,
    study_folder: Path,
) -> None:
    """Compile what the points that are to be measured need, where several have stages that compile for long."""
    runners: dict[str, Runner] = {}
    timeouts = [0.0]
    for point in plan.points:
        options = run_options(point, entries)
        stages = (entries[name].stage for name in options.stages.split(","))
        compiling = any(stage.compiles_within or stage.first_updates_within for stage in stages)
        if point.name in wanted and compiling:
            timeouts.append(options.timeout)
            with suppress(UsageError):  # which is told when its turn comes
                runners[point.name] = _runner_at(data_dir, entries, view, study_folder, point)
    if len(runners) > 1:
        compile_points(runners, study_folder, max(timeouts), view)


def _measure_point(
    data_dir: Path | None, entries: dict[str, Entry], view: LiveView, study_folder: Path, point: Point, folder: Path
) -> str | None:
    """Run the ladder at a point of a study, or go on with it; why it cannot be done where that is so."""
    has_begun = (folder / "results.json").exists()
    try:
        runner = _runner_at(data_dir, entries, view, study_folder, point)
    except UsageError as error:
        if has_begun:  # on another machine, or of another version
            raise
        view.note(f"{point.name}: skipped: {error}")
        return str(error)
    try:
        runner.run(view)
    except UsageError as error:
        view.note(f"{point.name}: skipped: {error}")
        return str(error)
    return None


def _runner_at(
    data_dir: Path | None, entries: dict[str, Entry], view: LiveView, study_folder: Path, point: Point
) -> Runner:
    """The run of a point, new or as far as it came."""
    folder, limits = study_folder / point.name, _limits_before(study_folder)
    options = run_options(point, entries)
    options.data_dir = data_dir or options.data_dir
    if (folder / "results.json").exists():
        options.resume = folder
        return _resumed(options, {}, entries, view, limits)[0]
    options.out = folder
    return _begun(options, entries, view, limits)[0]


def _limits_before(study_folder: Path) -> LimitsRecord | None:
    """What an earlier point found of the GPU's limits, which are the same for all."""
    found = (_load(path).limits for path in study_folder.glob("*/results.json"))
    return next((limits for limits in found if limits is not None), None)


def tune(argv: list[str]) -> int:
    """Measure the launch shapes of a network's kernels, keep them, and draw what was measured."""
    options = tune_parser().parse_args(argv)
    # Checked before the data is looked for, which may take a download; its sizes are put in below.
    asked = Problem(inputs=1, classes=1, hidden=options.hidden, batch_size=options.batch_size)
    gpu = open_gpu()
    folder: Path = options.out or Path("runs") / f"tune-{datetime.now().strftime('%Y%m%d-%H%M%S')}"
    with LiveView() as view:
        dataset = load_dataset(data_dir=options.data_dir, seed=0, progress=view.download)
        problem = replace(asked, inputs=dataset.train.images.shape[1], classes=dataset.classes)
        check_fits(problem, dataset)
        _make(folder)
        tuning = Tuning(problem, dataset.train, gpu)
        if tuning.damaged:
            view.note(f"{tuning.damaged}: cannot be read; what it kept is measured again")
        names = [name_of(operation) for operation in tuning.operations]
        view.begin(len(names), names)
        kernels = []
        try:
            for name, operation in zip(names, tuning.operations, strict=True):
                view.start(name, 1, 1)
                kernels.append(tuning.measure(operation, options.again))
                view.finish(name, "kept" if kernels[-1].was_kept else "tuned", outcome(kernels[-1]))
        except KeyboardInterrupt:
            view.note(f"interrupted; {len(kernels)} of {len(names)} kernels are kept, the same command does the rest")
            return INTERRUPTED
    record = TuningRecord(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=shlex.join(["python", "run_ladder.py", *sys.argv[1:]]),
        gpu=gpu.name,
        network="-".join(map(str, (problem.inputs, *problem.hidden, problem.classes))),
        batch_size=problem.batch_size,
        kernels=kernels,
    )
    save_tuning(record, folder)
    render_tuning(record, folder)
    print_tuning(record, folder)
    return 0


def compare_runs(argv: list[str]) -> int:
    """Tell what became of each stage between two runs, or show several side by side."""
    options = compare_parser().parse_args(argv)
    if not 0 <= options.threshold < 1:
        raise UsageError(f"threshold {options.threshold:g}: must be a share from 0% to below 100%, such as 2%")
    runs = named_runs(options.runs, ROOT / "results" / "reference")
    if len(runs) > 2:
        if options.strict or options.threshold != compare_parser().get_default("threshold"):
            raise UsageError(f"--strict and --threshold: are a gate between two runs, not {len(runs)}; name two")
        print_comparison(compare_machines(runs), options.format)
        return 0
    (base, base_run), (new, new_run) = runs
    found = compare(base_run, new_run, (base, new), threshold=options.threshold, strict=options.strict)
    print_comparison(found, options.format)
    return found.exit_code


def readme(argv: list[str]) -> int:
    """Bring README.md, and the limits of docs/method.md, up to date with the recorded runs."""
    parser = OneLineParser(
        prog="run_ladder.py readme", description="Write the recorded runs into README.md and docs/method.md."
    )
    parser.parse_args(argv)
    plans = [read_study(path, "", "") for path in sorted((ROOT / "experiments").glob("*.toml"))]
    reference = ROOT / "results" / "reference"
    changed = update_readme(ROOT / "README.md", reference)
    changed |= update_published(ROOT / "docs" / "studies.md", reference, plans)
    changed |= update_limits(ROOT / "docs" / "method.md", ROOT / "README.md", reference)
    documents = "README.md and docs/method.md"
    print(f"{documents} are now up to date" if changed else f"{documents} were up to date")
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
    """The folders of recorded runs in the README's order, the shallowest network first."""
    return [ROOT / folder for folder, _ in recorded_runs(ROOT / "README.md", ROOT / "results" / "reference")]


def _list_row(entry: Entry) -> tuple[str, str, str, str]:
    stage = entry.stage
    reason = environment.missing(stage.needs)
    needs = ", ".join(stage.needs) or "nothing"
    return stage.name, stage.changed or stage.title, needs, "yes" if reason is None else f"no: {reason}"


def _seen_by_nsys(options: argparse.Namespace, entries: dict[str, Entry], chosen: Sequence[Entry]) -> list[str] | None:
    """The names of the chosen stages that nsys is to see; None for all."""
    if options.nsys_stages is None:
        return None
    option = f"--nsys-stages {options.nsys_stages}"
    if "nsys" not in profilers(options):
        raise UsageError(f"{option}: nsys sees none without --profile nsys; give that, too")
    seen = [entry.stage.name for entry in select(options.nsys_stages, entries) if entry in chosen]
    if not seen:
        raise UsageError(f"{option}: this run has none of them; name some of its own")
    return seen


def _begun(
    options: argparse.Namespace, entries: dict[str, Entry], view: LiveView, limits: LimitsRecord | None = None
) -> tuple[Runner, Path]:
    """A run of its own, in a folder of its own; the GPU's limits are not measured again where they are given."""
    chosen = select(options.stages, entries)
    settings = Settings(
        options.rounds,
        options.repeats,
        options.warmups,
        options.budget,
        options.timeout,
        profilers(options),
        remeasure=options.remeasure,
        at_once=options.at_once,
        precision=options.precision,
        curve_steps=options.curve_steps,
        lock_clocks_mhz=options.lock_clocks,
        nsys_stages=_seen_by_nsys(options, entries, chosen),
        salt=secrets.randbits(31),
    )
    if options.time_cap is not None:
        settings = msgspec.structs.replace(settings, time_cap_s=options.time_cap)
    check_time_cap(options.time_cap, options.precision)
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
        validate_every=options.validate_every,
    )
    folder: Path = options.out or Path("runs") / datetime.now().strftime("%Y%m%d-%H%M%S")
    _refuse_begun(folder)
    dataset = load_dataset(data_dir=options.data_dir, seed=options.seed, progress=view.download)
    problem = Problem(**{**asked.__dict__, "inputs": dataset.train.images.shape[1], "classes": dataset.classes})
    check_fits(problem, dataset)
    dataset = cut(dataset, problem.batch_size, options.max_steps)
    with locked_clocks(settings.lock_clocks_mhz, view.note):
        pass  # refused now or not at all
    _make(folder)  # last, so that a run that is refused leaves none behind
    results = Results(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=shlex.join(["python", "run_ladder.py", *sys.argv[1:]]),
        environment=environment.describe(),
        problem=describe_problem(problem, dataset, options.max_steps),
        settings=settings,
        stages=[],
        limits=limits,
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


def _refuse_begun(folder: Path) -> None:
    if (folder / "results.json").exists():
        raise UsageError(f"{folder}: holds a results.json; go on with --resume {folder}, or choose another --out")


def _refuse_begun_study(folder: Path) -> None:
    if (folder / INDEX).exists():
        raise UsageError(f"{folder}: holds a study; go on with study --resume {folder}, or choose another --out")


def _resumed(
    options: argparse.Namespace,
    given: dict[str, object],
    entries: dict[str, Entry],
    view: LiveView,
    limits: LimitsRecord | None = None,
) -> tuple[Runner, Path]:
    """A run that stopped, with the settings it began with; the GPU's limits as they are given where it has none."""
    free = ("resume", "data_dir", "profile", "nsys_stages", "stage_file")
    for name, value in given.items():
        # `make ladder` always says `--stages all`, which for a resumed run are all of its own.
        if name not in free and (name, value) != ("stages", "all"):
            text = ",".join(map(str, value)) if isinstance(value, tuple) else value
            option = f"--{name.replace('_', '-')} {text}"
            raise UsageError(f"{option}: a resumed run keeps its settings; leave it out, or start anew")
    folder: Path = options.resume if options.resume.is_dir() else options.resume.parent
    results = _load(options.resume)
    results = msgspec.structs.replace(results, limits=results.limits or limits)
    check_settings(results.settings)
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
        validate_every=was.validate_every,
    )
    if describe_problem(problem, dataset).dataset_sha256 != was.dataset_sha256:
        raise UsageError(f"{folder}: was measured on {was.dataset}, found here is {dataset.name}; give its --data-dir")
    dataset = cut(dataset, problem.batch_size, was.max_steps)
    _check_same_machine(results, folder)
    unknown = [stage.name for stage in results.stages if stage.name not in entries]
    if unknown:
        raise UsageError(
            f"{folder}: measured {unknown[0]}, which this version does not have; start anew, or give its --stage-file"
        )
    chosen = [entries[stage.name] for stage in results.stages]
    for stage, entry in zip(results.stages, chosen, strict=True):
        if stage.processes and stage.code not in (None, code_of(entry.source)):
            raise UsageError(f"{folder}: {stage.name} has other code by now than when it was measured; start anew")
    seen = _seen_by_nsys(options, entries, chosen)
    if "profile" in given:
        if options.profile != ["nsys"]:
            raise UsageError(
                "--profile: a run that is there can only be given nsys; cupti records inside of what is timed"
            )
        if results.settings.at_once > 1:
            raise UsageError(f"--profile nsys: {folder} was run side by side, without times; start anew for a profile")
        tools: list[Tool] = [*(tool for tool in results.settings.profile if tool != "nsys"), "nsys"]
        settings = msgspec.structs.replace(results.settings, profile=tools, nsys_stages=seen)
        results = msgspec.structs.replace(results, settings=settings)
    return Runner(results, chosen, dataset, problem, folder), folder


def _check_same_machine(results: Results, folder: Path) -> None:
    """Raise UsageError where results are of another machine, other libraries or another commit than there are now."""
    now = environment.describe()
    for what in ("gpu", "cpu", "libraries", "code"):
        then, today = (_without_dirt(found.get(what)) for found in (results.environment, now))
        if then != today:
            raise UsageError(f"{folder}: was measured with another {what} than there is now; measure anew with --out")


def _without_dirt(found: object) -> object:
    """What an environment says, less whether files differ from the commit: reports and notes do, while one measures."""
    return {k: v for k, v in found.items() if k != "uncommitted_changes"} if isinstance(found, dict) else found


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a batch system or a closed terminal: as Ctrl-C
        signal.signal(ending, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
