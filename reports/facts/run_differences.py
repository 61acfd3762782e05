"""The differences of two runs apart from their times: problem, machine, libraries, code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ladder.records.run import Process, Results, StageCode, Status
from reports.facts.numbers import line
from reports.facts.provenance import COMMIT_DIGITS, part
from reports.facts.run_table import dataset_name

# The compared parts of an environment: name, and path of the value.
MACHINE = (
    ("GPU", ("gpu", "name")),
    ("driver", ("gpu", "driver")),
    ("GPU's power limit", ("gpu", "power_limit_w")),
    ("CPU", ("cpu", "model")),
    ("number of usable cores", ("cpu", "cores_usable")),
    ("BLAS", ("blas", "library")),
    ("number of BLAS threads", ("blas", "threads")),
    ("Python", ("python",)),
)
PROBLEM = ("learning_rate", "learning_rates", "epochs", "seed", "metrics_every", "validate_every", "dataset_sha256")


def cannot_compare(base: Results, new: Results) -> str:
    """Why a ratio of their times would mean nothing; empty if it means something."""
    for quantity, then, now in (
        ("networks", base.problem.network, new.problem.network),
        ("batch sizes", base.problem.batch_size, new.problem.batch_size),
        ("numbers of networks", base.problem.networks, new.problem.networks),
        ("numbers of GPUs", base.problem.gpus, new.problem.gpus),
    ):
        if then != now:
            return f"different {quantity} ({then}, {now}); name runs of one problem"
    return ""


def is_same_run(base: Results, new: Results) -> bool:
    """Whether both files are of one run: its start, its problem, and the code and processes of every stage."""
    return (base.created, base.problem, _processes(base)) == (new.created, new.problem, _processes(new))


def _processes(run: Results) -> dict[str, tuple[Status, StageCode | None, list[Process]]]:
    return {stage.name: (stage.status, stage.code, stage.processes) for stage in run.stages}


def differences(base: Results, new: Results) -> list[str]:
    """One sentence for each difference that may change times although no stage changed."""
    return [
        *_problem(base, new),
        *_machine(base, new),
        *_clocks(base, new),
        *_named(base, new, "libraries", "Libraries"),
        *_named(base, new, "variables", "Environment variables"),
        *_code(base, new),
    ]


def _problem(base: Results, new: Results) -> Iterator[str]:
    for field in PROBLEM:
        then, now = getattr(base.problem, field), getattr(new.problem, field)
        if then == now:
            continue
        if field == "dataset_sha256":
            yield f"The data differ: {line(dataset_name(base.problem))}, {line(dataset_name(new.problem))}."
        else:
            yield f"The problems differ in {field.replace('_', ' ')}: {then}, {now}."


def _machine(base: Results, new: Results) -> Iterator[str]:
    for words, path in MACHINE:
        then, now = (_at(run.environment, path) for run in (base, new))
        if then != now:
            yield f"The {words} differs: {_word(then)}, {_word(now)}."


def _clocks(base: Results, new: Results) -> Iterator[str]:
    then, now = (run.settings.lock_clocks_mhz for run in (base, new))
    if then != now:
        words = ("not locked" if mhz is None else f"locked at {mhz:,} MHz" for mhz in (then, now))
        yield f"The GPU's clock differs: {', '.join(words)}."
    given = [_at(run.environment, ("gpu_clocks", "application_sm_mhz")) for run in (base, new)]
    if None not in given and given[0] != given[1]:
        yield f"The GPU's application clock differs: {_word(given[0])}, {_word(given[1])} MHz."


def _named(base: Results, new: Results, where: str, words: str) -> Iterator[str]:
    """What a part of one run's environment has by a name, and another's has not, or differently."""
    then, now = (part(run.environment, where) for run in (base, new))
    changed = [name for name in dict.fromkeys([*then, *now]) if then.get(name) != now.get(name)]
    if changed:
        absent = ["none" if where in run.environment else "not recorded" for run in (base, new)]
        each = (f"{name} {_word(then.get(name, absent[0]))}, {_word(now.get(name, absent[1]))}" for name in changed)
        yield f"{words} differ: {'; '.join(each)}."


def _code(base: Results, new: Results) -> Iterator[str]:
    then, now = (part(run.environment, "code") for run in (base, new))
    commits = [code.get("git_commit") for code in (then, now)]
    if commits[0] != commits[1]:
        words = ", ".join("none recorded" if commit is None else str(commit)[:COMMIT_DIGITS] for commit in commits)
        what = "commits differ, the stages' code does not" if _same_stages(base, new) else "code differs"
        yield f"The {what}: commits {words}."
    for which, code in (("first", then), ("new", now)):
        if code.get("uncommitted_changes"):
            yield f"The {which} run was made with uncommitted changes."


def _same_stages(base: Results, new: Results) -> bool:
    """Whether the runs have stages in common, each with the same code."""
    codes = {stage.name: stage.code for stage in base.stages}
    shared = [(codes[stage.name], stage.code) for stage in new.stages if stage.name in codes]
    return bool(shared) and all(then is not None and then == now for then, now in shared)


def _at(environment: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = environment
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _word(value: Any) -> str:
    return "none" if value is None else line(str(value))
