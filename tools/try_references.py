"""Measures other ways to write the PyTorch and JAX references on a GPU. None of them can be chosen for a reference.

    python -m tools.try_references [torch-compile torch-dataloader torch-uncompiled kernels ...]

Each family has its own process. A row gives the microseconds of a step, the seconds of preparation, and the relative
distance of parameters and loss to float64 after an epoch. `kernels` lists the kernels of compiled steps;
`torch-two-streams` and `torch-one-stream` give the time of an epoch's graph in consecutive runs of one process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from common.cuda.clock import fence
from common.data.dataset import Split, load_dataset
from common.oracle import Oracle
from common.problem import Params, Problem, initial_params
from common.trainer import Trainer
from ladder.measure.protocol import one_line
from ladder.measure.timing import timed_run
from stages.references import jax_scan, torch_compile, torch_dataloader, torch_eager, torch_graph
from stages.references.torch_common import RunEpoch, TorchSetup, TorchTrainer
from stages.references.torch_graph import Variant
from stages.references.torch_step import matrix_product

ROOT = Path(__file__).resolve().parent.parent
Build = Callable[[Problem, Split], Trainer]

PROBLEMS = (
    Problem(784, 10),
    Problem(784, 10, (256,)),
    Problem(784, 10, (128, 128, 128), batch_size=32),
)
# Seconds in which a family may begin variants; half a minute later it is stopped.
SECONDS = {
    "torch-uncompiled": 20,
    "torch-two-streams": 40,
    "torch-one-stream": 40,
    "torch-compile": 40,
    "torch-dataloader": 10,
    "jax-whole": 5,
    "kernels": 20,
}
EPOCHS = 10
RUNS = 10  # consecutive runs whose times are printed
TRAIN: list[Split] = []  # the training data, after loading


def captured_eager(setup: TorchSetup) -> RunEpoch:
    """The epoch in one graph, uncompiled."""
    run_eagerly = torch_eager.prepare(setup)
    graphs = {due: torch_graph.captured(partial(run_eagerly, due)) for due in (False, True)}
    return lambda due: graphs[due].replay()


def compiled_script(setup: TorchSetup, compiler: dict[str, Any]) -> RunEpoch:
    """The script of PyTorch's documentation: `backward()` and the optimizer inside `torch.compile`."""
    import torch

    model, totals = setup.model, setup.totals
    optimizer = torch.optim.SGD(model.parameters(), lr=setup.problem.learning_rate)

    @torch.compile(dynamic=False, **compiler)  # type: ignore[untyped-decorator, unused-ignore]
    def step(images: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(images)
            loss = torch.nn.functional.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        return loss.detach(), logits.detach()

    batches = setup.resident_batches()
    for _ in range(4):
        step(*batches[0])

    def run_epoch(due: bool) -> None:
        for images, labels in batches:
            loss, logits = step(images, labels)
            if due:
                totals.add(loss, logits, labels)

    return run_epoch


def on_two_streams(problem: Problem, train: Split) -> Trainer:
    """The stage's trainer, after a few kernels on a second stream."""
    import torch

    trainer = torch_graph.build(problem, train, amp=False)
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(20):
            torch.ones(1, device="cuda")
    return trainer


def loader(setup: TorchSetup, **options: Any) -> RunEpoch:
    """`torch-dataloader` with other options of `DataLoader`."""
    import torch.utils.data as data

    plain = data.DataLoader
    data.DataLoader = lambda *arguments, **given: plain(*arguments, **(given | options))
    try:
        return torch_dataloader.prepare(setup)
    finally:
        data.DataLoader = plain


def torch_build(prepare: Callable[[TorchSetup], RunEpoch]) -> Build:
    """A stage's `build` from a preparation."""
    return lambda problem, train: TorchTrainer(problem, train, prepare)


def graph_build(prepare: Callable[[TorchSetup], RunEpoch]) -> Build:
    """The same for a stage that captures graphs."""

    def build(problem: Problem, train: Split) -> Trainer:
        torch_graph.use_one_stream()
        return TorchTrainer(problem, train, prepare)

    return build


def variants(family: str) -> Iterator[tuple[str, Build]]:
    """The variants of one family, the most promising first."""
    if family == "torch-uncompiled":
        yield "uncompiled", graph_build(captured_eager)
    elif family == "torch-two-streams":
        yield "two streams", on_two_streams
    elif family == "torch-one-stream":
        yield "one stream", partial(torch_graph.build, amp=False)
    elif family == "torch-compile":
        for mode in ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "default"):
            yield mode, torch_build(partial(torch_compile.prepare, compiler={"mode": mode}))
        product = partial(torch_compile.prepare, linear=matrix_product)
        for mode in ("reduce-overhead", "max-autotune"):
            yield f"{mode}, linear", torch_build(partial(product, compiler={"mode": mode}))
        for mode in ("default", "reduce-overhead"):
            yield f"script, {mode}", torch_build(partial(compiled_script, compiler={"mode": mode}))
    elif family == "torch-dataloader":
        yield "no workers, pinned", torch_build(loader)
        yield "no workers, not pinned", torch_build(partial(loader, pin_memory=False))
        yield "4 workers, pinned", torch_build(partial(loader, num_workers=4, persistent_workers=True))
    elif family == "kernels":
        for amp in (False, True):
            for name, variant in (("sum of products", Variant(unroll=1)), ("linear", torch_graph.BOTH["linear"])):
                graph = partial(torch_graph.prepare, amp=amp, variant=replace(variant, unroll=1))
                yield f"{name}{', AMP' * amp}", graph_build(graph)
    elif family == "jax-whole":
        yield "unrolled whole", partial(jax_scan.JaxScanTrainer, variant=jax_scan.Variant(10**6))


@cache
def oracle_epoch(problem: Problem) -> tuple[dict[str, Any], float]:
    """The oracle's parameters after one epoch from run 0's, and its mean loss."""
    oracle = Oracle(problem, initial_params(problem, 0))
    seen = oracle.run_epoch(TRAIN[0].images, TRAIN[0].labels)
    return Params(tuple(oracle.weights), tuple(oracle.biases)).tensors(), seen.mean_loss


def row(build: Build, problem: Problem) -> str:
    """The row of one variant on one problem."""
    begin = time.perf_counter()
    trainer = build(problem, TRAIN[0])
    fence()
    prepare_s = time.perf_counter() - begin

    def run(epochs: int) -> float:
        return timed_run(trainer, initial_params(problem, 0), epochs, fence=fence, clock=time.perf_counter).seconds

    run(1)
    epoch_s = run(1)
    epochs = EPOCHS if epoch_s < 0.2 else 1
    step_us = min(run(epochs) for _ in range(3)) / epochs / problem.steps(len(TRAIN[0].images)) * 1e6

    trainer.load_params(initial_params(problem, 0))
    trainer.run_epoch(problem.metrics_every - 1)
    wanted, loss = oracle_epoch(problem)
    got, metrics = trainer.read_params().tensors(), trainer.last_metrics()
    trainer.close()
    error = max(float(np.linalg.norm(got[name] - tensor) / np.linalg.norm(tensor)) for name, tensor in wanted.items())
    loss_error = abs(metrics.mean_loss / loss - 1) if metrics else float("nan")
    return f"{step_us:8.1f} us  prepare {prepare_s:5.1f} s  parameters {error:.1e}  loss {loss_error:.1e}"


def speeds(build: Build, problem: Problem) -> str:
    """Microseconds a step of consecutive runs, each from new parameters and with an epoch of totals."""
    trainer, steps = build(problem, TRAIN[0]), problem.steps(len(TRAIN[0].images))
    runs = []
    for number in range(RUNS):
        run = timed_run(trainer, initial_params(problem, number), EPOCHS, fence=fence, clock=time.perf_counter)
        trainer.read_params()
        runs.append(run.seconds / EPOCHS / steps * 1e6)
    trainer.close()
    return " ".join(f"{us:.2f}" for us in runs) + " us"


def kernels(build: Build, problem: Problem) -> str:
    """The kernels of a step: how many, the microseconds of each, and the name."""
    import torch

    trainer = build(problem, TRAIN[0])
    trainer.run_epoch(0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        trainer.run_epoch(0)
        fence()
    trainer.close()
    steps = problem.steps(len(TRAIN[0].images))
    seen = sorted(profile.key_averages(), key=lambda kernel: -kernel.self_device_time_total)[:14]
    return "".join(
        f"\n    {k.count / steps:5.2f} x {k.self_device_time_total / k.count:6.2f} {k.key[:90]}" for k in seen
    )


MEASURES = {"kernels": kernels, "torch-two-streams": speeds, "torch-one-stream": speeds}  # the other families: a row


def run_family(family: str) -> None:
    """Measure every variant on every problem while time is left."""
    warnings.simplefilter("ignore")
    TRAIN.append(load_dataset(data_dir=None, seed=0).train)
    end = time.monotonic() + SECONDS[family]
    for problem in PROBLEMS:
        shape = f"{','.join(map(str, problem.hidden)) or 'logistic'} b{problem.batch_size}"
        for name, build in variants(family):
            if time.monotonic() > end:
                continue
            if family.startswith("torch"):
                import torch

                torch.compiler.reset()
            try:
                said = MEASURES.get(family, row)(build, problem)
            except Exception as error:
                said = one_line(error)[:160]
                traceback.print_exc()
            print(f"{family:16} {shape:18} {name:36} {said}", flush=True)


def run_apart(command: list[str], seconds: float) -> str:
    """Run a command in its own process; returns how it ended, with the last line of stderr after a failure."""
    # A file, since a compiler's workers may outlive the process and keep a pipe open.
    with TemporaryFile("w+", errors="replace") as stderr:
        try:
            status = subprocess.run(command, timeout=seconds, stderr=stderr, cwd=ROOT, check=False).returncode
        except subprocess.TimeoutExpired:
            return "stopped, out of time"
        if status == 0:
            return "done"
        stderr.seek(0)
        said = stderr.read().strip().splitlines() or ["it said nothing"]
    return f"failed, status {status}: {said[-1]}"


def main() -> None:
    """Run the families of the command line, one after the other; returns the exit status."""
    parser = argparse.ArgumentParser(description="Measure other ways to write the references.")
    choices = ["all", *SECONDS]
    parser.add_argument(
        "families",
        nargs="*",
        default="all",
        choices=choices,
        metavar="family",
        help=f"{', '.join(choices)} (default: all)",
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for family in SECONDS if "all" in options.families else options.families:
        if options.here:
            run_family(family)
            continue
        command = [sys.executable, "-m", "tools.try_references", "--here", family]
        print(f"{family}: {run_apart(command, SECONDS[family] + 30)}", flush=True)


if __name__ == "__main__":
    main()
