"""A run in a folder: begun there or resumed, after all checks that could refuse it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Protocol

import msgspec

from common.data.dataset import load_dataset
from common.errors import UsageError
from ladder.machine import environment
from ladder.machine.clock_lock import locked_clocks
from ladder.options.commands import Resume, Run
from ladder.options.run_options import RunOptions, from_record
from ladder.records.limits import LimitsRecord
from ladder.records.profile import Tool
from ladder.records.run import Results, load
from ladder.records.study import INDEX
from ladder.run.entries import all_entries
from ladder.run.lock import alone_in
from ladder.run.preflight import check_fits, cut, describe_problem
from ladder.run.runner import Observer as RunObserver
from ladder.run.runner import Runner
from ladder.run.sources import code_of
from stages.registry import Entry, select


class Observer(RunObserver, Protocol):
    """Watches a run, and the download of its data."""

    def download(self, done: int, total: int | None, name: str) -> None:
        """`done` bytes of a file have arrived; `total` is None if the server does not tell."""


@contextmanager
def opened(asked: Run | Resume, observer: Observer, command: str) -> Iterator[tuple[Runner, Path]]:
    """A new or a stopped run with its folder, which it has to itself until the block ends.

    UsageError for a run that cannot be, or cannot go on. `command` is the command line, recorded with a new run.
    """
    entries, own = all_entries(asked.stage_file)
    with ExitStack() as locks:
        if isinstance(asked, Resume):
            folder = _folder(asked.resume)
            if (folder.parent / INDEX).exists():  # a study's point, which the study may be measuring
                locks.enter_context(alone_in(folder.parent))
            locks.enter_context(alone_in(folder))
            yield resume(asked, entries, observer), folder
        else:
            options = msgspec.structs.replace(asked.options, stages=(*asked.options.stages, *own))
            folder = asked.out or Path("runs") / datetime.now().strftime("%Y%m%d-%H%M%S")
            runner = begin(options, entries, folder, observer, command)
            locks.enter_context(alone_in(folder))
            _refuse_begun(folder)  # once more: while the data was downloaded, another run may have begun here
            yield runner, folder


def begin(
    options: RunOptions,
    entries: Mapping[str, Entry],
    folder: Path,
    observer: Observer,
    command: str,
    limits: LimitsRecord | None = None,
) -> Runner:
    """A new run in a folder of its own; it measures the GPU's limits unless they are given."""
    chosen = select(options.stages, dict(entries))
    seen = _seen_by_nsys(options.nsys_stages, options.profilers, entries, chosen)
    options.problem()  # checked before the data is looked for, which may take a download
    _refuse_begun(folder)
    dataset = load_dataset(data_dir=options.data_dir, seed=options.seed, progress=observer.download)
    problem = options.problem(dataset.train.images.shape[1], dataset.classes)
    check_fits(problem, dataset)
    dataset = cut(dataset, problem.batch_size, options.max_steps)
    with locked_clocks(options.lock_clocks, observer.note):
        pass  # refused now or not at all
    make_folder(folder)  # last, so that a refused run leaves no folder behind
    results = Results(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        environment=environment.describe(),
        problem=describe_problem(problem, dataset, options.max_steps),
        settings=options.settings(secrets.randbits(31), seen),
        stages=[],
        limits=limits,
    )
    return Runner(results, chosen, dataset, problem, folder)


def resume(
    asked: Resume, entries: Mapping[str, Entry], observer: Observer, limits: LimitsRecord | None = None
) -> Runner:
    """A stopped run with its recorded options; `limits` replace missing limits of the GPU."""
    folder = _folder(asked.resume)
    results = load(asked.resume)
    results = msgspec.structs.replace(results, limits=results.limits or limits)
    options, was = from_record(results, asked.resume), results.problem
    problem = options.problem(was.inputs, was.classes)
    dataset = load_dataset(data_dir=asked.data_dir, seed=options.seed, progress=observer.download)
    if dataset.sha256 != was.dataset_sha256:
        raise UsageError(f"{folder}: was measured on {was.dataset}, found here is {dataset.name}; give its --data-dir")
    dataset = cut(dataset, problem.batch_size, options.max_steps)
    check_same_machine(results, folder)
    chosen = _recorded_stages(results, entries, folder)
    seen = _seen_by_nsys(asked.nsys_stages, asked.profile or (), entries, chosen)
    if asked.profile is not None:
        results = _with_nsys(results, asked.profile, seen, folder)
    return Runner(results, chosen, dataset, problem, folder)


def _folder(path: Path) -> Path:
    """The folder of a run, named by itself or by the file in it."""
    return path if path.is_dir() else path.parent


def make_folder(folder: Path) -> None:
    """Make a run's folder; refuse one that could not keep the results before anything is measured."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"--out {folder}: cannot be written to ({error.strerror}); choose another folder") from error


def _refuse_begun(folder: Path) -> None:
    """Raise UsageError for a folder that holds another run."""
    if (folder / "results.json").exists():
        raise UsageError(f"{folder}: holds a results.json; continue it with --resume {folder}, or choose another --out")


def check_same_machine(results: Results, folder: Path) -> None:
    """Raise UsageError where the results come from another machine, other libraries or another commit."""
    now = environment.describe()
    for part in ("gpu", "cpu", "libraries", "code"):
        then, today = (_without_dirt(found.get(part)) for found in (results.environment, now))
        if then != today:
            raise UsageError(f"{folder}: was measured with another {part} than this one; measure anew with --out")


def _without_dirt(found: object) -> object:
    """A part of an environment without its note on uncommitted files: reports and notes change during a run."""
    return {k: v for k, v in found.items() if k != "uncommitted_changes"} if isinstance(found, dict) else found


def _recorded_stages(results: Results, entries: Mapping[str, Entry], folder: Path) -> list[Entry]:
    """The stages of a recorded run; UsageError for one that is gone or whose code has changed."""
    for stage in results.stages:
        if stage.name not in entries:
            way_out = "start anew, or give its --stage-file"
            raise UsageError(f"{folder}: measured {stage.name}, which this version does not have; {way_out}")
        if stage.processes and stage.code not in (None, code_of(entries[stage.name].source)):
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
    seen = [entry.stage.name for entry in select(names, dict(entries)) if entry in chosen]
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
