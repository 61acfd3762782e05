"""What a run would measure here, and for how long, without data and without a folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from ladder.options.commands import Run
from ladder.records.run import ResultsError, load
from ladder.run.entries import CLASSES, IMAGES, INPUTS, all_entries, stages_of
from ladder.run.preflight import cannot_run, check_oracle_fits, misfit
from ladder.run.session import check_any_runs, check_options


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


def dry_run(asked: Run, runs: Path) -> Planned:
    """The stages and times of a run; UsageError as the run itself would raise it before it looks for its data."""
    entries, own = all_entries(asked.stage_file)
    options = msgspec.structs.replace(asked.options, stages=(*asked.options.stages, *own))
    chosen = stages_of(options, entries)
    check_options(options, entries, chosen, asked.out)
    problem = options.problem(INPUTS, CLASSES)
    check_oracle_fits(problem)
    steps = min(problem.steps(IMAGES), options.max_steps or IMAGES)
    reasons = {entry.stage.name: cannot_run(entry.stage) or misfit(entry.stage, problem, steps) for entry in chosen}
    check_any_runs(reasons)
    stages = [name for name, why in reasons.items() if not why]
    each_s = options.seconds_a_stage
    in_all_s = options.seconds_in_all
    return Planned(
        network="-".join(map(str, (INPUTS, *problem.hidden, CLASSES))),
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
