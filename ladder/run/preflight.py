"""The images of a run, and checks of the user's settings, data and network, before anything is started."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Timer

from common.cost import parameters
from common.data import dataset as images
from common.data.dataset import Dataset
from common.data.npz import SUFFIX
from common.errors import UsageError
from common.problem import Problem
from ladder.machine.environment import cores_usable, missing
from ladder.options.run_options import RunOptions, with_ends
from ladder.records.run import ProblemRecord
from ladder.run.observer import DownloadObserver
from stages.engine.misfit import HINT
from stages.engine.stage import Stage
from stages.registry import load_all

# Per parameter in float64: value, gradient and initial value, and the results of three verified first updates.
ORACLE_BYTES = 56
LAUNCHERS = {  # their variables for a process's number, the number of processes, and that of hosts
    "torchrun": ("RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES"),
}
CONTEXT_MIB = 600  # GPU memory of CUDA and its libraries, before a stage allocates any
GPU_SPARE = 2.5  # times the estimate: a framework keeps copies of the images while it uploads them
HOST_MIB_EACH, HOST_SHARE = 2048, 0.5  # of the host's memory, for the libraries and images of stages side by side
A_CORE = 2  # stages that prepare: each waits for files and for its context half of the time
MOST_SIDE_BY_SIDE = 32  # the driver creates one context after the other, so that more take longer to be ready
PATIENCE_S = 1.5  # without an answer from the mirrors, until the user hears of it
WAY_OUT = "name a folder with its four files: --data-dir FOLDER"


def dataset_of(*, data_dir: Path | None, seed: int, observer: DownloadObserver) -> Dataset:
    """The user's files, else MNIST, else synthetic digits; a note says why MNIST could not be had.

    Raises UsageError for files that cannot be used.
    """
    waiting = Timer(PATIENCE_S, lambda: observer.note(f"waiting for MNIST's mirrors; {WAY_OUT}"))
    waiting.daemon = True

    def progress(done: int, total: int | None, name: str) -> None:
        waiting.cancel()
        observer.download(done, total, name)

    if not (data_dir or os.environ.get("LADDER_DATA_DIR")):
        waiting.start()
    try:
        dataset = images.load_dataset(data_dir=data_dir, seed=seed, progress=progress)
    finally:
        waiting.cancel()
    if dataset.name.endswith(SUFFIX) and (changed := dataset.source.partition("; ")[2]):
        observer.note(f"{dataset.name}: {changed}")
    _, drawn, reason = dataset.source.partition("; no MNIST: ")
    if drawn:
        observer.note(f"no MNIST ({reason}): synthetic digits stand in; {WAY_OUT}")
    return dataset


def posed(options: RunOptions, observer: DownloadObserver) -> tuple[Problem, Dataset]:
    """The training problem and its images; UsageError for settings that do not go together."""
    options.problem()  # checked before the data is looked for, which may take a download
    dataset = dataset_of(data_dir=options.data_dir, seed=options.seed, observer=observer)
    problem = problem_of(options, dataset.train.images.shape[1], dataset.classes, observer)
    check_fits(problem, dataset)
    return problem, cut(dataset, problem.batch_size, options.max_steps)


def problem_of(options: RunOptions, inputs: int, classes: int, observer: DownloadObserver) -> Problem:
    """The training problem; a note says which network it is where the hidden layers repeat its ends."""
    if told := with_ends(options.hidden, inputs, classes):
        observer.note(f"{told}; this trains {'-'.join(map(str, (inputs, *options.hidden, classes)))}")
    return options.problem(inputs, classes)


def cannot_run(stage: Stage) -> str | None:
    """Why a stage cannot run here; None if it can. If only the GPU is too old, the text names the rung below."""
    reason = missing(stage.needs)
    ageless = [need for need in stage.needs if not need.startswith("sm_")]
    return f"{reason}; try {stage.below}" if reason and stage.below and missing(ageless) is None else reason


def obstacle(stage: Stage, problem: Problem, dataset: Dataset, gpu_memory_mib: float | None) -> str:
    """Why a stage cannot be measured on this problem here; empty if it can."""
    steps = problem.steps(len(dataset.train.images))
    reason = cannot_run(stage) or misfit(stage, problem, steps)
    if stage.needs and not reason:
        validated = len(dataset.test.images) if problem.validate_every else 0
        reason = gpu_has_no_room(problem, len(dataset.train.images) + validated, gpu_memory_mib) or ""
    return reason


def misfit(stage: Stage, problem: Problem, steps: int, told: str = "") -> str:
    """Why a stage does not take a problem, as it says or `told`, with the closest rung that does; empty if it does."""
    reason, hint, name = (told or stage.misfit(problem, steps) or "").partition(HINT)
    while (rung := load_all().get(name.strip("`."))) and (others := rung.stage.misfit(problem, steps)):
        name = others.partition(HINT)[2]
    return reason + (hint + name if name or not hint else "The closest rungs do not take it either.")


def refuse_idle_gpus(gpus: int, stages: Sequence[Stage]) -> None:
    """Raise UsageError if several GPUs are asked for, and every stage trains on one."""
    if gpus > 1 and not any(stage.takes_gpus for stage in stages):
        names = stages[0].name if len(stages) == 1 else f"every one of {len(stages)} stages"
        raise UsageError(f"--gpus {gpus}: {names} trains on one GPU; leave it out, or add a stage of `devices`")


def leaves_to_rank_0(gpus: int) -> bool:
    """Whether torchrun or srun started this process beside rank 0, whose run starts a process a GPU by itself.

    Raises UsageError unless there are as many processes as GPUs, on one host: they share memory.
    """
    for launcher, (rank, ranks, hosts) in LAUNCHERS.items():
        started = int(os.environ.get(ranks, "1")) if gpus > 1 and rank in os.environ else 1
        if started > 1:
            if started != gpus or os.environ.get(hosts, "1") != "1":
                reason = f"{started} processes{' on several hosts' * (os.environ.get(hosts, '1') != '1')}"
                raise UsageError(f"--gpus {gpus}: {launcher} started {reason}; start {gpus} on one host, or one alone")
            return os.environ[rank] != "0"
    return False


def cut(dataset: Dataset, batch_size: int, max_steps: int | None) -> Dataset:
    """The images of `max_steps` steps per epoch, and at most as many test images; None cuts nothing.

    Test images are cut as well because float64 evaluates them.
    """
    if max_steps is None:
        return dataset
    images = max_steps * batch_size
    return dataset.first(images, images)


def check_fits(problem: Problem, dataset: Dataset) -> None:
    """Raise UsageError if the data has less than one batch, or the oracle needs more than the host's memory."""
    images = len(dataset.train.images)
    if problem.batch_size > images:
        raise UsageError(
            f"batch size {problem.batch_size}: {dataset.name} has {images} training images; choose {images} or fewer"
        )
    check_oracle_fits(problem)


def check_oracle_fits(problem: Problem) -> None:
    """Raise UsageError if the oracle needs more than the host's memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if parameters(problem) * problem.networks * ORACLE_BYTES > memory:
        raise UsageError(
            f"hidden {','.join(map(str, problem.hidden))}: the float64 oracle of {parameters(problem):,} parameters "
            f"does not fit into {memory >> 30} GiB of memory; choose smaller layers"
        )


def _gpu_needed_mib(problem: Problem, images: int) -> float:
    """What a stage takes of the GPU's memory, by estimate.

    Every stage holds the images, the parameters with their gradients, and the activations with theirs.
    """
    units = sum(layer.fan_out for layer in problem.layers)
    numbers = images * problem.inputs + problem.networks * 2 * (parameters(problem) + problem.batch_size * units)
    return numbers * 4 / 2**20 + CONTEXT_MIB


def room_for_stages(problem: Problem, images: int, gpu_free_mib: float) -> int:
    """How many stages may prepare side by side, by estimates of what they take of the GPU's and the host's memory."""
    host_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    of_gpu = gpu_free_mib / (GPU_SPARE * _gpu_needed_mib(problem, images))
    return int(min(of_gpu, HOST_SHARE * host_mib / HOST_MIB_EACH, A_CORE * cores_usable(), MOST_SIDE_BY_SIDE))


def gpu_has_no_room(problem: Problem, images: int, memory_mib: float | None) -> str | None:
    """Why a stage will not fit into the GPU's memory, by estimate; None if it fits or the memory is unknown."""
    needed_mib = _gpu_needed_mib(problem, images)
    if memory_mib is None or needed_mib <= memory_mib:
        return None
    return (
        f"needs about {needed_mib / 1024:,.0f} GiB of GPU memory, this GPU has {memory_mib / 1024:,.0f} GiB; "
        "choose smaller layers"
    )


def describe_problem(problem: Problem, dataset: Dataset, max_steps: int | None = None) -> ProblemRecord:
    """The problem and its data, as the results file records them."""
    return ProblemRecord(
        dataset=dataset.name,
        is_mnist=dataset.is_mnist,
        dataset_source=dataset.source,
        dataset_sha256=dataset.sha256,
        train_images=len(dataset.train.images),
        test_images=len(dataset.test.images),
        max_steps=max_steps,
        **{**asdict(problem), "hidden": list(problem.hidden), "learning_rates": list(problem.learning_rates)},
    )
