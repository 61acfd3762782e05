"""A run in a folder: begun there or resumed, after all checks that could refuse it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from common.cuda.driver import devices
from common.data.dataset import SYNTHETIC, Dataset
from common.errors import UsageError
from common.problem import Problem
from ladder.machine import environment
from ladder.machine.clock_lock import locked_clocks
from ladder.machine.environment import missing
from ladder.machine.gpu_monitor import GpuMonitor
from ladder.machine.limits import kept_limits
from ladder.options.commands import Resume, Run
from ladder.options.run_options import RunOptions, from_record
from ladder.records.expectation import Expected
from ladder.records.limits_record import LimitsRecord
from ladder.records.profile import Tool
from ladder.records.run import Results, ResultsError, Settings, load, results_in
from ladder.records.source_walk import Project
from ladder.records.study import INDEX
from ladder.run.bench import Bench
from ladder.run.code_watch import Disk, hashes_of, keep_sources
from ladder.run.entries import CLASSES, IMAGES, INPUTS, all_entries, stages_of
from ladder.run.expected import expected_here
from ladder.run.folders import alone_in, make_folder
from ladder.run.judge import drawn_salt
from ladder.run.jury import Jury
from ladder.run.ledger import Ledger
from ladder.run.observer import RunObserver
from ladder.run.preflight import (
    cannot_run,
    check_oracle_fits,
    cut,
    dataset_of,
    describe_problem,
    misfit,
    posed,
    problem_of,
    refuse_idle_gpus,
    room_for_stages,
)
from ladder.run.runner import Runner
from ladder.run.stage_run import StageRun
from stages.engine.stage import GPU
from stages.registry import Entry, select


@contextmanager
def opened(asked: Run | Resume, observer: RunObserver, command: str) -> Iterator[tuple[Runner, Path]]:
    """A new or a stopped run with its folder, which it has to itself until the block ends.

    UsageError for a run that cannot be, or cannot go on. `command` is the command line, recorded with a new run.
    """
    entries, own = all_entries(asked.stage_file)
    first = () if asked.no_fail_fast else own
    with ExitStack() as locks:
        if isinstance(asked, Resume):
            folder = _folder(asked.resume)
            if (folder.parent / INDEX).exists():  # a study's point, which the study may be measuring
                locks.enter_context(alone_in(folder.parent))
            locks.enter_context(alone_in(folder))
            yield resume(asked, entries, observer, checked_first=first), folder
        else:
            options = msgspec.structs.replace(asked.options, stages=(*asked.options.stages, *own))
            runner, folder = begin(options, entries, asked.out, observer, command, checked_first=first)
            locks.enter_context(alone_in(folder))
            _refuse_begun(folder)  # once more: while the data was downloaded, another run may have begun here
            yield runner, folder


def begin(
    options: RunOptions,
    entries: Mapping[str, Entry],
    out: Path | None,
    observer: RunObserver,
    command: str,
    limits: LimitsRecord | None = None,
    checked_first: Collection[str] = (),
) -> tuple[Runner, Path]:
    """A new run and its folder, a new one unless `out` names it; measures the GPU's limits unless they are given.

    `checked_first` names stages that are measured only if a check finds them right.
    """
    has_gpu = missing(("gpu",)) is None
    chosen = stages_of(options, entries)
    seen = check_options(options, entries, chosen, out)
    check_any_runs({entry.stage.name: cannot_run(entry.stage) for entry in chosen})  # before the data is downloaded
    problem, dataset = posed(options, observer)
    steps = problem.steps(len(dataset.train.images))
    check_any_runs({each.stage.name: cannot_run(each.stage) or misfit(each.stage, problem, steps) for each in chosen})
    described = environment.describe()
    for name, remark in losers(chosen, options.stages, expected_here(problem, steps, _gpu_of(described))).items():
        observer.note(f"{name}: {remark}; it is not timed unless --stages names it")
        chosen = [entry for entry in chosen if entry.stage.name != name]
    if options.profile and (why := _unprofilable(options.profile, chosen)):
        observer.note(f"--profile {','.join(options.profile)}: {why}; only times are measured")
    with locked_clocks(options.lock_clocks, observer.note):
        pass  # refused now or not at all
    folder = make_folder(out)  # last, so that a refused run leaves no folder behind
    project = Project(Disk())
    keep_sources(chosen, entries, folder, project)
    if described["code"]["git_commit"] is None and (refusal := environment.git_refusal()):
        observer.note(refusal)
    if limits is None and has_gpu and options.at_once == 1 and any(entry.stage.needs for entry in chosen):
        limits = kept_limits(described)
    results = Results(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        environment=described,
        problem=describe_problem(problem, dataset, options.max_steps),
        settings=options.settings(seen),
        stages=[],
        limits=limits,
    )
    return assembled(results, chosen, dataset, problem, folder, checked_first=checked_first, project=project), folder


def resume(
    asked: Resume,
    entries: Mapping[str, Entry],
    observer: RunObserver,
    limits: LimitsRecord | None = None,
    checked_first: Collection[str] = (),
) -> Runner:
    """A stopped run with its recorded options but for those that `asked` changes; `limits` replace missing ones."""
    folder = _folder(asked.resume)
    results = load(asked.resume)
    results = msgspec.structs.replace(results, limits=results.limits or limits)
    options, was = from_record(results, asked.resume), results.problem
    problem = options.problem(was.inputs, was.classes)
    is_found = was.dataset in ("MNIST", SYNTHETIC) or asked.data_dir or os.environ.get("LADDER_DATA_DIR")
    if not is_found:  # before MNIST's mirrors are asked
        raise UsageError(f"{folder}: was measured on {was.dataset}; give its --data-dir")
    dataset = dataset_of(data_dir=asked.data_dir, seed=options.seed, observer=observer)
    check_same_data(results, dataset, folder)
    dataset = cut(dataset, problem.batch_size, options.max_steps)
    check_same_machine(results, folder)
    chosen = _recorded_stages(results, entries, folder)
    seen = _seen_by_nsys(asked.nsys_stages, asked.profile or (), entries, chosen)
    tries = {"budget_s": asked.budget, "timeout_s": asked.timeout, "remeasure": asked.remeasure}
    settings = msgspec.structs.replace(results.settings, **{k: v for k, v in tries.items() if v is not None})
    results = msgspec.structs.replace(results, settings=settings)
    if asked.profile is not None:
        results = _with_nsys(results, asked.profile, seen, folder)
    return assembled(results, chosen, dataset, problem, folder, checked_first=checked_first)


def assembled(
    results: Results,
    entries: Sequence[Entry],
    dataset: Dataset,
    problem: Problem,
    folder: Path,
    salt: int | None = None,
    checked_first: Collection[str] = (),
    project: Project | None = None,
) -> Runner:
    """A run with its bench, ledger and jury; the salt of the initial parameters is drawn here unless it is given."""
    settings, known = results.settings, {stage.name: stage for stage in results.stages}
    salt, timed = drawn_salt() if salt is None else salt, settings.at_once == 1
    jury, project = Jury(problem, dataset, salt, settings.curve_steps, timed=timed), project or Project(Disk())
    expected = expected_here(problem, jury.steps, _gpu_of(results.environment))
    stages = [
        StageRun(entry, jury.steps, known.get(entry.stage.name), expected.get(entry.stage.name), project)
        for entry in entries
    ]
    ledger = Ledger(results, stages, folder)
    bench = Bench(ledger.folder, settings.timeout_s)
    bench.side_by_side = side_by_side(settings, bench.gpu, ledger.gpu_memory_mib, problem, dataset)
    return Runner(bench, ledger, jury, checked_first)


def _gpu_of(described: Mapping[str, Any]) -> str | None:
    return (described.get("gpu") or {}).get("name")


def losers(chosen: Sequence[Entry], words: Collection[str], expected: Mapping[str, Expected]) -> dict[str, str]:
    """Why rungs should lose to another chosen one, by name; of those that no word of `--stages` names themselves."""
    names = {entry.stage.name for entry in chosen}
    told = {name: expected[name] for name in names & expected.keys() - {*words} if expected[name].loses_to in names}
    return {name: one.remark for name, one in told.items()}


def side_by_side(
    settings: Settings, gpu: GpuMonitor, memory_mib: float | None, problem: Problem, dataset: Dataset
) -> int:
    """How many stages prepare side by side: as many as the run asks for, or as the GPU and the host have room for.

    Without a GPU, none does: the CPU that they prepare on is what is measured.
    """
    used_mib = gpu.memory_used_mib()
    if settings.at_once > 1 or memory_mib is None or used_mib is None or not gpu.takes_several_processes():
        return 0
    if settings.prepare_at_once is not None:
        return settings.prepare_at_once
    return room_for_stages(problem, len(dataset.train.images), memory_mib - used_mib)


def check_any_runs(reasons: Mapping[str, str | None]) -> None:
    """Raise UsageError if every stage has a reason why it cannot be measured here."""
    if all(reasons.values()):
        (first, reason), *others = reasons.items()
        names = f"{first} and {len(others)} more" if others else first
        raise UsageError(f"{names}: cannot be measured here: {reason}; `run_ladder.py list` shows which stages can")


def _unprofilable(tools: Sequence[Tool], chosen: Sequence[Entry]) -> str | None:
    """Why none of these tools can profile any of these stages here; None if one can."""
    has_rung_on_cpu = any(entry.stage.place is not GPU for entry in chosen)
    if has_rung_on_cpu and "stamps" in tools:
        return None
    if not any(need == "cuda" or need.startswith("sm_") for entry in chosen for need in entry.stage.needs):
        return f"none of these stages needs a GPU{'; add stamps' if has_rung_on_cpu else ' or is a rung on the CPU'}"
    return missing(("cuda",))


def _folder(path: Path) -> Path:
    """The folder of a run, named by itself or by the file in it."""
    return path if path.is_dir() else path.parent


def check_options(
    options: RunOptions, entries: Mapping[str, Entry], chosen: Sequence[Entry], out: Path | None
) -> list[str] | None:
    """Raise UsageError for options that do not fit together, or here; returns the stages that nsys profiles."""
    seen = _seen_by_nsys(options.nsys_stages, options.profilers, entries, chosen)
    if out is not None:
        _refuse_begun(out)
    refuse_idle_gpus(options.gpus, [entry.stage for entry in chosen])
    return seen


def _refuse_begun(folder: Path) -> None:
    """Raise UsageError for a folder that holds another run."""
    if results_in(folder).exists():
        raise UsageError(f"{folder}: holds a results.json; continue it with --resume {folder}, or choose another --out")


def check_same_data(results: Results, dataset: Dataset, folder: Path) -> None:
    """Raise UsageError where the results come from other data."""
    was = results.problem
    if (dataset.sha256, dataset.classes) != (was.dataset_sha256, was.classes):
        raise UsageError(f"{folder}: was measured on {was.dataset}, found here is {dataset.name}; give its --data-dir")


def check_same_machine(results: Results, folder: Path) -> None:
    """Raise UsageError where the results come from another machine, other libraries or another commit."""
    now = environment.describe()
    for part in ("gpu", "cpu", "libraries", "code", *({"variables"} & results.environment.keys())):
        then, today = (_without_dirt(machine.get(part)) for machine in (results.environment, now))
        if then != today:
            raise UsageError(f"{folder}: was measured with different {part}; measure anew with --out")


def _without_dirt(value: object) -> object:
    """A part of an environment without its note on uncommitted files: reports and notes change during a run."""
    return {k: v for k, v in value.items() if k != "uncommitted_changes"} if isinstance(value, dict) else value


def _recorded_stages(results: Results, entries: Mapping[str, Entry], folder: Path) -> list[Entry]:
    """The stages of a recorded run; UsageError for one that is gone or whose code has changed."""
    project = Project(Disk())
    for stage in results.stages:
        if stage.name not in entries:
            way_out = "start anew, or give its --stage-file"
            raise UsageError(f"{folder}: measured {stage.name}, which this version does not have; {way_out}")
        if stage.processes and stage.code not in (None, hashes_of(entries[stage.name].source, project)):
            raise UsageError(f"{folder}: the code of {stage.name} has changed since it was measured; start anew")
    return [entries[stage.name] for stage in results.stages]


def _seen_by_nsys(
    names: Sequence[str] | None, tools: Sequence[Tool], entries: Mapping[str, Entry], chosen: Sequence[Entry]
) -> list[str] | None:
    """The names of the chosen stages that nsys profiles; None for all."""
    if names is None:
        return None
    option = f"--nsys-stages {','.join(names)}"
    if "nsys" not in tools:
        raise UsageError(f"{option}: needs --profile nsys; add it")
    seen = [entry.stage.name for entry in select(names, entries) if entry in chosen]
    if not seen:
        raise UsageError(f"{option}: this run has none of these stages; name some of its own")
    return seen


def _with_nsys(results: Results, asked: Sequence[Tool], seen: list[str] | None, folder: Path) -> Results:
    """A recorded run with a profile by nsys still to do, the only addition allowed."""
    if tuple(asked) != ("nsys",):
        raise UsageError(
            f"--profile {','.join(asked) or 'none'}: a resumed run can add nsys alone; CUPTI records inside timed runs"
        )
    if results.settings.at_once > 1:
        raise UsageError(f"--profile nsys: {folder} ran stages side by side, without times; start anew for a profile")
    tools: list[Tool] = [*(tool for tool in results.settings.profile if tool != "nsys"), "nsys"]
    settings = msgspec.structs.replace(results.settings, profile=tools, nsys_stages=seen)
    return msgspec.structs.replace(results, settings=settings)


class Planned(NamedTuple):
    """A run as it would be, on data as large as MNIST."""

    network: str
    networks: int
    batch_size: int
    stages: list[str]  # those that would run
    reasons: dict[str, str]  # why each of the others would not
    rounds: int
    timed_s: float  # the most seconds of timed runs, of all stages together
    each_s: float  # of one stage
    earlier: tuple[Path, float, int] | None  # the newest run here of this network and batch: seconds, and stages


def dry_run(asked: Run, runs: Path, observer: RunObserver) -> Planned:
    """The stages and times of a run; UsageError as the run itself would raise it. MNIST alone is not looked for."""
    entries, own = all_entries(asked.stage_file)
    options = msgspec.structs.replace(asked.options, stages=(*asked.options.stages, *own))
    chosen = stages_of(options, entries)
    check_options(options, entries, chosen, asked.out)
    if options.data_dir or os.environ.get("LADDER_DATA_DIR"):
        problem, dataset = posed(options, observer)
        steps = problem.steps(len(dataset.train.images))
    else:
        problem = problem_of(options, INPUTS, CLASSES, observer)
        check_oracle_fits(problem)
        steps = min(problem.steps(IMAGES), options.max_steps or IMAGES)
    reasons = {entry.stage.name: cannot_run(entry.stage) or misfit(entry.stage, problem, steps) for entry in chosen}
    check_any_runs(reasons)
    gpus = [device.name for device in devices()]
    reasons |= losers(chosen, options.stages, expected_here(problem, steps, gpus[0] if gpus else None))
    stages = [name for name, why in reasons.items() if not why]
    each_s = options.seconds_a_stage
    in_all_s = options.seconds_in_all
    return Planned(
        network="-".join(map(str, (problem.inputs, *problem.hidden, problem.classes))),
        networks=problem.networks,
        batch_size=problem.batch_size,
        stages=stages,
        reasons={name: why for name, why in reasons.items() if why},
        rounds=options.rounds,
        timed_s=min(len(stages) * each_s, in_all_s if in_all_s is not None else float("inf")),
        each_s=each_s,
        earlier=_earlier(runs, (list(problem.hidden), problem.batch_size, problem.networks)),
    )


def _earlier(runs: Path, wanted: tuple[list[int], int, int]) -> tuple[Path, float, int] | None:
    """The newest run in a folder with these hidden layers, batch and networks, its seconds, and its passed stages."""
    for path in sorted(runs.glob("*/results.json"), key=lambda path: path.stat().st_mtime, reverse=True):
        with suppress(ResultsError):
            run = load(path)
            problem = run.problem
            if (problem.hidden, problem.batch_size, problem.networks) == wanted and run.seconds > 0:
                return path.parent, run.seconds, sum(stage.status == "passed" for stage in run.stages)
    return None
