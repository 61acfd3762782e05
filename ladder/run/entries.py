"""The stages of a run: the ladder's, and those in the user's files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from common.cache import at_home
from common.errors import UsageError
from common.problem import Problem
from common.vocabulary import CONTENDERS
from ladder.machine.environment import missing
from ladder.options.run_options import RunOptions
from ladder.processes.stage_files import described
from ladder.records.expectation import Expected, Listed
from ladder.run.expected import Costs, expectations
from ladder.run.preflight import misfit
from stages.engine.stage import Stage
from stages.registry import Entry, load_all, select

IMAGES, INPUTS, CLASSES = 60_000, 784, 10  # of MNIST
CLOSE = 1.5  # times the fastest of its class: from there on the model has never named the fastest recorded rung


def all_entries(stage_files: Sequence[Path] = ()) -> tuple[dict[str, Entry], tuple[str, ...]]:
    """Every stage by its name, the user's last, and the names of the user's.

    Raises UsageError for a file without a stage, and for a stage with an unknown need.
    """
    entries = load_all()
    own = own_entries(stage_files, entries)
    for entry in own.values():
        try:
            missing(entry.stage.needs)
        except ValueError as error:
            raise UsageError(f"--stage-file {entry.source.rpartition(':')[0]}: {error}") from error
    return entries | own, tuple(own)


def own_entries(paths: Iterable[Path], ours: Mapping[str, Entry]) -> dict[str, Entry]:
    """The stages in a user's files by their ids; raises UsageError if a file has no valid stage or its id is taken."""
    own: dict[str, Entry] = {}
    files = list(dict.fromkeys(at_home(path, "--stage-file").resolve() for path in paths))
    for path, entry in zip(files, described(files), strict=True):
        name = entry.stage.name
        if name in ours or name in own:
            other = own[name].source.rpartition(":")[0] if name in own else "the ladder"
            raise UsageError(f"--stage-file {path}: its stage is called {name}, as one of {other}; choose another name")
        own[name] = entry
    return own


def entry_of(asked: str) -> tuple[Entry, bool]:
    """A stage by the file of one's own or by its name, and whether it is one's own; UsageError where there is none."""
    path = Path(asked)
    if is_own := path.suffix == ".py" or len(path.parts) > 1 or path.is_file():
        try:
            entries, (asked,) = all_entries([path])
        except UsageError as error:  # `check` has no option of this name
            raise UsageError(str(error).replace(f"--stage-file {path.resolve()}", f"check {path}")) from error
    else:
        entries = load_all()
    entry, *others = select([asked], entries)
    if others:
        raise UsageError(f"{asked}: names {1 + len(others)} stages; check one at a time")
    return entry, is_own


def stages_of(options: RunOptions, entries: Mapping[str, Entry]) -> list[Entry]:
    """The stages of a run, in ladder order, as `select` has them; UsageError for an unknown one."""
    words = options.stages
    if CONTENDERS in words:
        problem = options.problem(INPUTS, CLASSES)
        steps = min(problem.steps(IMAGES), options.max_steps or IMAGES)
        words = (*(word for word in words if word != CONTENDERS), *contenders(problem, steps))
    has_gpu = missing(("gpu",)) is None
    return select(words, entries, has_gpu=has_gpu, networks=options.trained_networks, gpus=options.gpus)


def contenders(problem: Problem, steps: int) -> list[str]:
    """The rungs beyond the classic ones that take a problem and may be the fastest of their class, in ladder order.

    A rung is left out only if the model of recorded runs gives it more than `CLOSE` times as long as another rung of
    its class, or of float32's. One that the model does not know is there wherever it fits.
    """
    expected = expectations(problem, steps)
    rungs = [entry.stage for entry in select(["all"], load_all(), networks=problem.networks)]
    fitting = [rung for rung in rungs if rung.group == "beyond" and not rung.misfit(problem, steps)]

    known = [rung for rung in fitting if rung.name in expected]

    def is_close(rung: Stage) -> bool:
        rivals = (expected[other.name].us for other in known if other.precision in ("float32", rung.precision))
        return rung not in known or expected[rung.name].us <= CLOSE * min(rivals)

    return [rung.name for rung in fitting if is_close(rung)]


def check_name(name: str, stage_files: Sequence[Path]) -> Stage:
    """The first stage of this name; raises UsageError for an unknown name, with the nearest ones."""
    return select([name], all_entries(stage_files)[0])[0].stage


def network_listed(hidden: tuple[int, ...] | None, batch_size: int | None) -> str:
    """The network that `listed` estimates: `784-512-10 on MNIST, batch 256`; empty if none is named."""
    if hidden is None and batch_size is None:
        return ""
    return f"{'-'.join(map(str, (INPUTS, *(hidden or ()), CLASSES)))} on MNIST, batch {batch_size or 128}"


def listed(
    stage_files: Sequence[Path], hidden: tuple[int, ...] | None = None, batch_size: int | None = None
) -> list[Listed]:
    """Every stage, with its needs and whether it runs here; of a network on MNIST, if one is named, also estimates.

    Raises UsageError for a network without estimates.
    """
    entries, expected, misfits = all_entries(stage_files)[0], dict[str, Expected](), dict[str, str]()
    if hidden is not None or batch_size is not None:
        problem = Problem(INPUTS, CLASSES, hidden or (), batch_size or 128)
        steps = problem.steps(IMAGES)
        expected = estimated(problem, steps)
        misfits = {name: misfit(entry.stage, problem, steps) for name, entry in entries.items()}
    return [
        Listed(
            name=stage.name,
            below=stage.below or "",
            group=stage.group,
            title=stage.title,
            needs=", ".join(stage.needs),
            missing=missing(stage.needs) or "",
            expected=expected.get(stage.name),
            words=stage.words,
            regime=stage.regime,
            misfit=misfits.get(stage.name, ""),
            only_with="networks" if stage.is_fleet else "gpus" if stage.takes_gpus else "",
        )
        for stage in (entry.stage for entry in entries.values())
    ]


def estimated(problem: Problem, steps: int, costs: Costs | None = None) -> dict[str, Expected]:
    """The estimates of the stages that take a problem; UsageError where it is larger than all recorded ones."""
    if expected := expectations(problem, steps, costs):
        return expected
    network = "-".join(map(str, (problem.inputs, *problem.hidden, problem.classes)))
    why = "larger than every recorded run, so no times are expected; choose smaller, or measure by `torch my_model.py`"
    raise UsageError(f"{network}, batch {problem.batch_size}: {why}")
