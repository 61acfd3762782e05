"""Times networks that nobody chose: drawn by a seed, with the rungs that may win and references beside them.

    python -m tools.drawn_networks FOLDER [--seed 82] [--networks 0-23] [--stages NAME,...] [OPTION ...]

A network is one run of the ladder in `FOLDER/seed-82-network-0`, of images drawn by the same seed, which the run's
parameters have too. Options are those of `run`. A network that is there is not timed again. At the end a table has
each lead over the fastest reference, and how right the model of expected times was.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from common.errors import UsageError
from common.problem import Problem
from ladder.options.commands import Advise
from ladder.options.run_options import RunOptions
from ladder.records.program import ROOT
from ladder.records.run import Results, load
from ladder.run.entries import IMAGES
from ladder.run.outlook import outlooks
from reports.writers.markdown import code, table

SEED, COUNT = 82, 24  # a seed that the model is not fitted to
STAGES = "contenders,torch-graph,torch-graph-amp,jax-scan,jax-scan-bf16"
MOST_STEPS, TEST_COUNT = 200, 1000  # of an epoch; of images
CLOSE = 1.1  # times the fastest rung's, that the expected fastest may take


def main(argv: Sequence[str]) -> int:
    """Time what the command line names, and print the table; returns the worst exit status of a run."""
    parser = argparse.ArgumentParser(prog="python -m tools.drawn_networks", allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--networks", default=f"0-{COUNT - 1}")
    parser.add_argument("--stages", default=STAGES)
    asked, options = parser.parse_known_args(argv)
    first, _, last = asked.networks.partition("-")
    problems, runs, worst = drawn(asked.seed), list[Results](), 0
    for number in range(int(first), int(last or first) + 1):
        folder, problem = asked.folder.resolve() / f"seed-{asked.seed}-network-{number}", problems[number]
        if not (folder / "results.json").exists():
            with TemporaryDirectory() as temporary:
                data = Path(temporary, f"{folder.name}.npz")
                write_images(data, problem, number)
                sizes = f"--hidden {','.join(map(str, problem.hidden))} --batch-size {problem.batch_size}".split()
                own = ["--data-dir", str(data), "--seed", str(asked.seed), "--out", str(folder)]
                words = [*sizes, "--stages", asked.stages, *own, *options]
                status = subprocess.call([sys.executable, "run_ladder.py", *words], cwd=ROOT)
            if status > 1:
                return status
            worst = max(worst, status)
        runs.append(load(folder))
    print(table_of(runs))
    return worst


def drawn(seed: int) -> list[Problem]:
    """Networks of 1 to 4 hidden layers; all sizes are even in their logarithms."""
    random = np.random.default_rng(seed)

    def size(least: int, most: int) -> int:
        return round(math.exp(random.uniform(math.log(least), math.log(most))))

    problems = list[Problem]()
    for _ in range(COUNT):
        hidden = tuple(size(16, 3000) for _ in range(int(random.integers(1, 5))))
        inputs, classes, batch_size = size(64, 1024), size(2, 62), size(16, 8192)
        problems.append(Problem(inputs, classes, hidden, batch_size, seed=seed))
    return problems


def write_images(file: Path, problem: Problem, number: int) -> None:
    """Write an `.npz` of images (N, I): each shows more than half of its class's pattern."""
    random = np.random.default_rng((problem.seed, number))
    sizes = problem.classes, problem.inputs
    patterns = (random.integers(256, size=sizes) * (random.random(sizes) < 0.3)).astype(np.uint8)
    arrays = dict[str, Any]()
    for part, count in (("train", min(problem.steps(IMAGES), MOST_STEPS) * problem.batch_size), ("test", TEST_COUNT)):
        labels = random.permutation(np.arange(count) % problem.classes).astype(np.uint8)
        shown = random.random((count, problem.inputs), np.float32) < 0.6
        arrays |= {f"x_{part}": patterns[labels] * shown, f"y_{part}": labels}
    np.savez(file, **arrays)


class Judged(NamedTuple):
    """A network's fastest rung and reference, and what the model said."""

    cells: tuple[str, ...]
    lead: float | None
    is_close: bool  # whether the expected fastest rung is the fastest, or nearly
    inside: int  # times within their ranges
    ranged: int  # times that have a range


def judged(run: Results) -> Judged:
    """One row."""
    problem = run.problem
    network = "-".join(map(str, (problem.inputs, *problem.hidden, problem.classes)))
    times = {stage.name: stage.timing.step_us for stage in run.stages if stage.timing}
    references = {stage.name: times[stage.name] for stage in run.stages if stage.group == "reference" and stage.timing}
    rungs = {name: us for name, us in times.items() if name not in references}
    try:
        options = RunOptions(hidden=tuple(problem.hidden), batch_size=problem.batch_size)
        rows = outlooks(Advise(options=options, inputs=problem.inputs, classes=problem.classes)).stages
    except UsageError:  # larger than the model knows
        rows = []
    known = {row.name: row for row in rows if row.name in times}
    outside = [
        f"{code(name)} {times[name] / row.us:.2f}"
        for name, row in known.items()
        if not row.low_us <= times[name] <= row.high_us
    ]
    fastest = min(rungs, key=rungs.__getitem__, default="")
    reference = min(references, key=references.__getitem__, default="")
    expected = min(rungs.keys() & known.keys(), key=lambda name: known[name].us, default="")
    lead = references[reference] / rungs[fastest] if fastest and reference else None
    times_as_long = rungs[expected] / rungs[fastest] if expected else None
    failed = [code(stage.name) for stage in run.stages if stage.status in ("failed", "crashed")]
    cells = (
        f"{network}, {problem.batch_size:,}",
        f"{code(fastest)} {rungs[fastest]:.2f}" if fastest else "-",
        f"{code(expected)} {times_as_long:.2f}x" if times_as_long else "-",
        f"{code(reference)} {references[reference]:.2f}" if reference else "-",
        f"{lead:.2f}x" if lead else "-",
        ", ".join(outside) or "-",
        ", ".join(failed) or "-",
    )
    is_close = times_as_long is not None and times_as_long <= CLOSE
    return Judged(cells, lead, is_close, len(known) - len(outside), len(known))


HEADER = (
    "network, batch", "fastest rung, us", "expected", "fastest reference, us", "lead", "outside its range", "failed",
)  # fmt: skip


def table_of(runs: Sequence[Results]) -> str:
    """The table, and what it comes to."""
    rows = [judged(run) for run in runs]
    leads = [row.lead for row in rows if row.lead]
    led = f"lead {statistics.median(leads):.2f}x in the median, {min(leads):.2f}x at least; " if leads else ""
    close, inside, ranged = (sum(counts) for counts in zip(*(row[2:] for row in rows), strict=True))
    seeds = ", ".join(map(str, sorted({run.problem.seed for run in runs})))
    right = f"the expected rung is at most {CLOSE}x the fastest in {close}"
    ranges = f"{inside} of {ranged} times lie in their range"
    networks = f"{len(rows)} networks of seed {seeds}"
    return f"{table(HEADER, [row.cells for row in rows])}\n\n{networks}: {led}{right}; {ranges}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
