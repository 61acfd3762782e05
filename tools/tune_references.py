"""Finds the fastest variant of a reference for each network on this GPU; stages/references/choices.json keeps it.

    python -m tools.tune_references [torch-graph torch-graph-amp jax-scan jax-scan-bf16] [--network 784-256-10/8192 ...]

Networks are the recorded ones, wide ones and large batches. Variants are built side by side, a wave at once, of which
one at a time times its kernels, then timed alone. Both have a limit of time; a failed or late variant ends its process,
and the next wave has a new one. A row has the microseconds of a step, the seconds of preparation beside others, where
an earlier variant's code may be cached, and how far the parameters are from float64 after an epoch. Of the variants as
exact as the default, the fastest is kept. Within the noise the default wins, else the one that prepares in the least
time, since every user waits for that. A wave builds one variant for many networks and lasts as long as its slowest;
variants that try many kernels take minutes, and come last. Each wave's winners are kept at once, so that an
interruption costs what was not tried. An earlier choice is replaced only once its variant was tried again.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import multiprocessing
import os
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np

from common.blas import limit_blas_threads
from common.choice import grant_turns_by
from common.cuda.clock import fence
from common.cuda.driver import DeviceInfo, devices
from common.data.dataset import Split, load_dataset
from common.errors import UsageError
from common.oracle import Oracle
from common.problem import Params, Problem, initial_params
from common.process_group import die_with_parent, kill_group
from common.trainer import Trainer
from ladder.measure.protocol import one_line
from ladder.measure.timing import timed_run
from ladder.processes.turn import Turn
from stages.references import jax_scan, jax_scan_bf16, torch_graph
from stages.references.choices import SHOWN, Choice, keep, read

SECONDS = 150.0  # to build one variant of one network, and again to time it
AT_ONCE = 8  # variants to build: two cores for each on a host of 16
ORACLE_FLOPS = 2e11  # of float64 in an epoch: wide networks have a shorter one
LEAST_BATCH = 32  # a step of fewer images takes NumPy as long
TIMINGS, RUNS, RUN_EPOCHS, LONG_EPOCH_S = 2, 7, 10, 0.05  # the faster timing counts: other work may slow one
GAIN = 0.02  # by which a variant must be faster than the default
# An error may be `EXACT` times the default's, or this. Between two exact variants a hidden output may flip: 9e-4 was
# seen of 784-4096x3-10, where the default had 2e-7. TF32 in float32's place has 5e-3 and more.
EXACT, EXACT_ENOUGH, FLIPPED = 10.0, 1e-5, 1e-3

NETWORKS = (  # recorded ones first, so that an interruption costs others
    Problem(784, 10),
    Problem(784, 10, (256,)),
    Problem(784, 10, (1024,)),
    Problem(784, 10, (128, 128, 128), batch_size=32),
    Problem(784, 10, (784, 784, 784, 784), batch_size=64),
    Problem(784, 10, (4096, 4096, 4096), batch_size=32, learning_rate=0.01),
    Problem(784, 10, (2048, 2048, 2048), batch_size=32, learning_rate=0.01),
    Problem(784, 10, (256,), batch_size=1, learning_rate=0.01),  # XLA compiles 16 such steps for minutes
    Problem(784, 10, (256,), batch_size=512),
    Problem(784, 10, (256,), batch_size=2048),
    Problem(784, 10, (256,), batch_size=8192),
    Problem(784, 10, (128, 128, 128), batch_size=256),
    Problem(784, 10, (128, 128, 128), batch_size=8192),
    Problem(784, 10, (256, 256), batch_size=60_000),
)


@dataclass(frozen=True)
class Tuned:
    """A stage with variants: how to build one, their names, and the library that compiles them."""

    build: Callable[..., Trainer]  # of a problem, a split and `variant`
    variants: Mapping[str, Any]
    default: str
    library: str


TUNED = {
    "torch-graph": Tuned(torch_graph.FLOAT32.build, torch_graph.VARIANTS["torch-graph"], torch_graph.DEFAULT, "torch"),
    "torch-graph-amp": Tuned(
        torch_graph.AMP.build, torch_graph.VARIANTS["torch-graph-amp"], torch_graph.DEFAULT, "torch"
    ),
    "jax-scan": Tuned(jax_scan.STAGE.build, jax_scan.VARIANTS, jax_scan.DEFAULT, "jax"),
    "jax-scan-bf16": Tuned(jax_scan_bf16.STAGE.build, jax_scan.VARIANTS, jax_scan.DEFAULT, "jax"),
}


@dataclass(frozen=True)
class Trial:
    """One variant of one stage on one network."""

    stage: str
    problem: Problem
    variant: str


@dataclass(frozen=True)
class Result:
    """What a trial measured."""

    step_us: float
    prepare_s: float
    error: float  # the largest relative distance of a tensor to float64 after an epoch

    def __str__(self) -> str:
        return f"{self.step_us:8.2f} us  prepare {self.prepare_s:5.1f} s  parameters {self.error:.1e}"


Build = Callable[[Trial], Callable[[], Result]]
"""Builds a trial; returns the function that times and frees it."""
Answer = Result | str | None
"""A trial's result, or in one line why there is none; None once it is built."""


def network(problem: Problem) -> str:
    """A network and its batch as the command line takes them, such as `784-256-10/128`."""
    return f"{'-'.join(map(str, (problem.inputs, *problem.hidden, problem.classes)))}/{problem.batch_size}"


def steps_of(problem: Problem, images: int) -> int:
    """The steps of an epoch here: all that there are, or as many as float64 can repeat."""
    weights = sum(layer.fan_in * layer.fan_out for layer in problem.layers)
    return max(1, min(problem.steps(images), int(ORACLE_FLOPS / (6 * weights * max(problem.batch_size, LEAST_BATCH)))))


def built(trial: Trial) -> Callable[[], Result]:
    """Build and warm the variant; returns the function that times it, compares an epoch with float64, and frees it."""
    tuned, problem = TUNED[trial.stage], trial.problem
    if tuned.library == "torch":
        import torch

        torch.compiler.reset()
    steps = steps_of(problem, len(_train().images))
    wanted, split = _oracle_epoch(problem, steps), _train().first(steps * problem.batch_size)
    begin = time.perf_counter()
    trainer = tuned.build(problem, split, variant=tuned.variants[trial.variant])
    fence()
    prepare_s = time.perf_counter() - begin

    def run(epochs: int) -> float:
        """Seconds of an epoch."""
        taken = timed_run(trainer, initial_params(problem, 0), epochs, fence=fence, clock=time.perf_counter)
        return taken.seconds / epochs

    def timed() -> Result:
        epochs = RUN_EPOCHS if run(1) < LONG_EPOCH_S else 1
        epoch_s = min(statistics.median(run(epochs) for _ in range(RUNS)) for _ in range(TIMINGS))
        run(1)
        got = trainer.read_params().tensors()
        trainer.close()
        error = max(float(np.linalg.norm(got[name] - right) / np.linalg.norm(right)) for name, right in wanted.items())
        return Result(epoch_s / steps * 1e6, prepare_s, error)

    run(1)
    return timed


@cache
def _train() -> Split:
    return load_dataset(data_dir=None, seed=0).train


@cache
def _oracle_epoch(problem: Problem, steps: int) -> dict[str, Any]:
    """The oracle's parameters after an epoch of `steps` steps."""
    oracle, images = Oracle(problem, initial_params(problem, 0)), steps * problem.batch_size
    oracle.run_epoch(_train().images[:images], _train().labels[:images])
    return Params(tuple(oracle.weights), tuple(oracle.biases)).tensors()


class Builder:
    """A process that builds one trial after the other, and times each in its turn; a new one after a failure."""

    def __init__(self, seconds: float, caches: str, build: Build = built) -> None:
        self._seconds, self._caches, self._build = seconds, caches, build
        self._connection: Connection | None = None

    def begin(self, trial: Trial | None) -> Self:
        """Have it build a trial, or time the one that it has built."""
        if self._connection is None:
            spawn = multiprocessing.get_context("spawn")
            self._connection, theirs = spawn.Pipe()
            self._process: Any = spawn.Process(target=_serve, args=(theirs, self._caches, self._build))
            self._process.start()
            theirs.close()
        self._deadline = time.monotonic() + self._seconds
        with suppress(OSError):  # it has ended, as `answer` will tell
            self._connection.send(trial)
        return self

    def answer(self) -> Answer:
        """Wait until it is built, timed, late or failed."""
        assert self._connection is not None
        said: Answer = f"stopped after {self._seconds:g} s"
        try:
            if self._connection.poll(max(0.0, self._deadline - time.monotonic())):
                said = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            said = f"its process ended with {self._process.exitcode}"
        if isinstance(said, str):
            self.close()
        return said

    def close(self) -> None:
        """End the process and the compiler's workers."""
        if self._connection is not None:
            kill_group(self._process.pid)
            self._process.kill()  # should it not lead its group yet
            self._process.join()
            self._connection.close()
            self._connection = None


def _serve(connection: Connection, caches: str, build: Build) -> None:
    os.setpgid(0, 0)  # so that compilers' workers end with this process
    die_with_parent()
    warnings.simplefilter("ignore")
    limit_blas_threads(2)  # more would wait for those of other processes
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "2"  # by default as many as cores, in each process
    # What compilers choose by timing beside other builds must not last.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = os.environ["TORCHINDUCTOR_CACHE_DIR"] = caches
    turn = Turn(Path(caches) / "turn")
    while True:
        try:
            trial = connection.recv()
        except EOFError:
            return
        try:
            with ExitStack() as stack:

                def wait(stack: ExitStack = stack) -> None:
                    stack.enter_context(turn)

                grant_turns_by(wait)
                timed = build(trial)
            connection.send(None)
            connection.recv()  # its turn
            said: Result | str = timed()
            del timed  # and what it holds, before the next is built
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]  # some say nothing else
            said = f"{one_line(error)[:160]} ({Path(at.filename).name}:{at.lineno})"
        connection.send(said)


def wave(trials: Sequence[Trial], builders: Sequence[Builder]) -> list[Answer]:
    """Build the trials side by side, each in a process; when none builds any more, time one at a time."""
    busy = [builder.begin(trial) for builder, trial in zip(builders, trials, strict=False)]
    answers = [builder.answer() for builder in busy]  # of all, before any is timed
    return [failed or builder.begin(None).answer() for builder, failed in zip(busy, answers, strict=True)]


def chosen(stage: str, problem: Problem, gpu: DeviceInfo, answers: Mapping[str, Answer]) -> Choice | None:
    """The choice that variants' answers make; None if the default has no result."""
    tuned, results = TUNED[stage], {name: said for name, said in answers.items() if isinstance(said, Result)}
    if tuned.default not in results:
        return None
    enough = FLIPPED if problem.hidden else EXACT_ENOUGH
    name, default = winner(results, tuned.default, enough), results[tuned.default]
    sizes = problem.inputs, problem.hidden, problem.classes, problem.batch_size
    times = round(results[name].step_us, 2), round(default.step_us, 2)
    library = f"{tuned.library} {importlib.metadata.version(tuned.library)}"
    others = {each: seen for each, seen in results.items() if each not in (name, tuned.default)}
    tried = {each: round(seen.step_us / default.step_us, 3) for each, seen in others.items()}
    return Choice(stage, gpu.name, gpu.sm, *sizes, name, *times, library, tried)


def winner(results: Mapping[str, Result], default: str, enough: float) -> str:
    """The variant to keep: as exact as the default or exact enough, and within the noise of the fastest of those."""
    usual = results[default]
    exact = {name: seen for name, seen in results.items() if seen.error <= max(EXACT * usual.error, enough)}
    exact[default] = usual  # also with an error that is no number
    fastest = min(seen.step_us for seen in exact.values())
    near = {name: seen.prepare_s for name, seen in exact.items() if seen.step_us * (1 - GAIN) <= fastest}
    return default if default in near else min(near, key=near.__getitem__)


def tune_all(
    stages: Collection[str],
    problems: Sequence[Problem],
    gpu: DeviceInfo,
    seconds: float,
    at_once: int,
    only: Collection[str],
) -> None:
    """Tune each stage on each network by its default and every variant, or `only` some; keep each choice once made."""
    for stage in stages:  # each by new processes, so that none holds two libraries
        tuned = TUNED[stage]
        names = [name for name in tuned.variants if not only or name in (tuned.default, *only)]
        trials = [Trial(stage, problem, name) for name in names for problem in problems]
        answers: dict[Problem, dict[str, Answer]] = {problem: {} for problem in problems}
        earlier, choices = {choice.key: choice.variant for choice in read()}, dict[Problem, Choice]()
        with TemporaryDirectory(ignore_cleanup_errors=True) as caches, ExitStack() as stack:
            builders = [stack.enter_context(closing(Builder(seconds, caches))) for _ in range(at_once)]
            for first in range(0, len(trials), at_once):
                those = trials[first : first + at_once]
                for trial, said in zip(those, wave(those, builders), strict=True):
                    print(f"{stage:16} {network(trial.problem):28} {trial.variant:42} {said}", flush=True)
                    tried = answers[trial.problem]
                    tried[trial.variant] = said
                    choice = chosen(stage, trial.problem, gpu, tried)
                    if choice and earlier.get(choice.key) not in tuned.variants.keys() - tried.keys():
                        choices[trial.problem] = choice
                keep(choices.values())
        for problem in problems:
            kept = f"kept: {choices[problem].variant}" if problem in choices else "nothing new"
            print(f"{stage:16} {network(problem):28} {kept}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune the stages of the command line; returns the exit code."""
    named = {network(problem): problem for problem in NETWORKS}
    parser = argparse.ArgumentParser(description=f"Write {SHOWN} on this machine's GPU.")
    parser.add_argument("stages", nargs="*", metavar="stage", help=f"of {', '.join(TUNED)} (default: all)", default=[])
    parser.add_argument("--network", action="append", choices=named, metavar="N", help=f"of {', '.join(named)}")
    variants = sorted({variant for tuned in TUNED.values() for variant in tuned.variants})
    parser.add_argument(
        "--variant", action="append", choices=variants, metavar="V", help="beside the default, try only V"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="to build, and to time (default: %(default)g)")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, metavar="N", help="to build (default: %(default)d)")
    options = parser.parse_args(arguments)
    unknown = [stage for stage in options.stages if stage not in TUNED]
    try:
        if unknown:
            raise UsageError(f"stage {unknown[0]!r}: has no variants; choose from {', '.join(TUNED)}")
        if not options.seconds > 0:
            raise UsageError(f"--seconds {options.seconds:g}: must be more than 0")
        if options.at_once < 1:
            raise UsageError(f"--at-once {options.at_once}: must be at least 1")
        if not devices():
            raise UsageError("no NVIDIA GPU here; the choices are of a GPU")
        read()  # a malformed file is refused before hours of measuring
        problems = [named[name] for name in options.network or named]
        limits = options.seconds, options.at_once
        tune_all(options.stages or TUNED, problems, devices()[0], *limits, options.variant or ())
    except UsageError as error:
        print(f"tune_references: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
