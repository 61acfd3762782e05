"""Judge correct stages over a grid of problems: `python -m tests.cheats.honest_grid COUNT --data-dir FOLDER`.

Prints every false failure with its problem and check, then their rate. Everything runs in this process, by the gates of
a real run but for those of times, with as many images and steps as a second or two of training allow.
"""

from __future__ import annotations

import argparse
import math
import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from common.blas import limit_blas_threads
from common.data.dataset import Dataset, Split, load_dataset
from common.errors import UsageError
from common.problem import Problem
from ladder.processes import seed_server
from ladder.records.run import Results, Settings, StageResult
from ladder.run import session, stage_run
from ladder.run.code_watch import CodeWatch
from ladder.run.preflight import describe_problem
from ladder.run.stage_run import TIME_CHECKS
from stages.references import thread_trials
from stages.registry import load_entry
from tests.ladder.harness import NUMPY, Watcher
from tests.ladder.in_process import judge_in_this_process

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
VALIDATING = (NUMPY, "stages.references.torch_eager:STAGE", f"{EXAMPLES}/torch_by_hand.py:STAGE")
ALWAYS = (*VALIDATING, "stages.cpu.loops:STAGE", "stages.cpu.resident:STAGE")
SOFTMAX_ONLY = (f"{EXAMPLES}/cpp_step.py:STAGE",)
JAX, JAX_SHARE = ("stages.references.jax_scan:STAGE", "stages.references.jax_scan_bf16:STAGE"), 0.1  # compiling is slow
MOST_WORK, FULL_WORK, FULL_SHARE = 3e7, 5e9, 0.01  # multiplications of a pass over the data, all epochs together
MOST_STEPS, MOST_IMAGES, TEST_IMAGES = 400, 60_000, 500


def drawn_data(random: np.random.Generator, digits: Dataset) -> tuple[str, Dataset]:
    """The digits, or drawn images of 36 pixels in 2 to 47 classes: far apart, one class in 20 images, or all alike."""
    kind = str(random.choice(["digits", "digits", "separable", "unbalanced", "constant"]))
    if kind == "digits":
        return kind, digits
    classes, pixels = int(random.integers(2, 48)), 36
    centres = random.integers(0, 256, (1 if kind == "constant" else classes, pixels))
    noise = {"separable": 2, "unbalanced": 60, "constant": 0}[kind]

    def split(images: int) -> Split:
        labels = random.integers(0, classes, images, dtype=np.uint8)
        if kind == "unbalanced":
            labels[random.random(images) < 0.95] = 0
        drawn = centres[labels % len(centres)] + random.integers(-noise, noise + 1, (images, pixels))
        return Split(np.clip(drawn, 0, 255).astype(np.uint8), labels)

    train, test = split(MOST_IMAGES), split(TEST_IMAGES)
    return kind, Dataset(kind, False, "drawn", {}, (6, 6), classes, train, test)


def drawn_problem(random: np.random.Generator, data: Dataset) -> tuple[Problem, int]:
    """A problem and its number of images: 1 to 60,000 a batch, 1 to 300 units, depth 0 to 8, rates of 1e-6 to 0.9."""
    pixels = data.train.images.shape[1]

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(random.uniform(np.log(low), np.log(high))))

    most = FULL_WORK if random.random() < FULL_SHARE else MOST_WORK
    while True:
        hidden = tuple(round(log_uniform(1, 300)) for _ in range(random.integers(0, 9)))
        sizes = (pixels, *hidden, data.classes)
        parameters = sum(a * b for a, b in pairwise(sizes))
        batch, epochs = round(log_uniform(1, MOST_IMAGES)), int(random.integers(1, 21))
        steps = min(MOST_IMAGES // batch, MOST_STEPS // epochs, int(most / (parameters * batch * epochs)))
        if steps >= 1:
            problem = Problem(
                pixels, data.classes, hidden, batch, log_uniform(1e-6, 0.9), epochs, int(random.integers(1 << 31)),
                metrics_every=int(random.choice([1, 2, 10])), validate_every=int(random.choice([0, 1])),
            )  # fmt: skip
            return problem, int(random.integers(batch * steps, min(MOST_IMAGES, batch * (steps + 1) - 1) + 1))


def judged(problem: Problem, data: Dataset, sources: list[str]) -> list[StageResult]:
    """The stages' results on this problem; raises UsageError if float64 diverges."""
    settings = Settings(1, 1, 0, budget_s=600.0, timeout_s=600.0, salt=problem.seed)
    with tempfile.TemporaryDirectory() as folder:
        results = Results("2026-01-01T00:00:00+00:00", "grid", {}, describe_problem(problem, data), settings, [])
        entries = [load_entry(source) for source in sources]
        return session.assembled(results, entries, data, problem, Path(folder), salt=problem.seed).run(Watcher()).stages


def draw_again_from(seed: int) -> None:
    """Give a stage's process seeds that follow from this one, so that a run can be repeated."""
    drawn = Random(seed)
    vars(seed_server)["secrets"] = SimpleNamespace(
        token_hex=secrets.token_hex, token_bytes=drawn.randbytes, randbits=drawn.getrandbits, randbelow=drawn.randrange,
        SystemRandom=lambda: drawn,
    )  # fmt: skip


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Judge stages until there are as many runs as asked for; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no problem later")
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args(arguments)
    random, digits = np.random.default_rng(options.seed), load_dataset(data_dir=options.data_dir, seed=0)
    patch = pytest.MonkeyPatch()
    judge_in_this_process(patch)
    watch = cache(CodeWatch)
    patch.setattr(stage_run, "CodeWatch", lambda source, _: watch(source))  # files do not change meanwhile
    vars(thread_trials)["usable_cores"] = lambda: 1
    limit_blas_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # PyTorch's threads would spin for each other on busy cores
    runs, failed, not_judged = Counter[str](), Counter[str](), Counter[str]()
    begin = time.monotonic()
    while runs.total() < options.count and time.monotonic() - begin < options.seconds:
        kind, data = drawn_data(random, digits)
        problem, images = drawn_problem(random, data)
        sources = [
            *(VALIDATING if problem.validate_every else ALWAYS),
            *(SOFTMAX_ONLY if not problem.hidden and not problem.validate_every else ()),
            *(JAX if random.random() < JAX_SHARE else ()),
        ]
        draw_again_from(problem.seed)
        try:
            stages = judged(problem, data.first(images, TEST_IMAGES), sources)
        except UsageError as error:
            _tell(f"no run: {error}")
            continue
        for stage in stages:
            if stage.status == "skipped":
                continue
            runs[stage.name] += 1
            not_judged.update({one.what for one in stage.checks if one.is_undecided})
            wrong = [one for one in stage.checks if not one.passed and one.what not in TIME_CHECKS]
            if wrong or stage.status == "crashed":
                failed[wrong[0].what if wrong else "crashed"] += 1
                told = ", ".join(f"{one.what}: {one.error} of {one.limit:.2e} {one.note}" for one in wrong[:3])
                _tell(f"FAILED {stage.name}: {problem} {images} images, {kind}: {told or stage.reason}")
        if runs.total() % 20 < len(stages):
            _tell(f"{runs.total()} runs, {failed.total()} failed, {time.monotonic() - begin:.0f} s")
    _tell(f"\n{runs.total()} runs: {dict(runs)}\nfailed: {failed.total()} {dict(failed)}")
    _tell(f"cannot decide: {dict(not_judged.most_common())}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
