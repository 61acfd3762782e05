"""What the user asked for, checked before anything is started."""

from __future__ import annotations

import os
from collections.abc import Iterable

from common.data.dataset import Dataset
from common.errors import UsageError
from common.problem import Problem
from ladder.machine.environment import missing
from ladder.records.run import ProblemRecord, Settings
from stages.registry import Entry

ORACLE_BYTES = 56  # for a parameter: it and its gradient in float64, their origin, and those of three first updates
CONTEXT_MIB = 600  # what CUDA and its libraries hold before a stage has asked for anything
MAX_RUNS = 450  # timed, and as warm-ups, in one process: run numbers leave room for 900


def check_settings(settings: Settings) -> None:
    """Raise UsageError for settings that no run can have."""
    for name, value, least in (
        ("rounds", settings.rounds, 1),
        ("repeats", settings.repeats, 1),
        ("warmups", settings.warmups, 0),
        ("remeasure", settings.remeasure, 0),
        ("at once", settings.at_once, 1),
    ):
        if not least <= value <= MAX_RUNS:
            raise UsageError(f"{name} {value}: must be from {least} to {MAX_RUNS}")
    if settings.curve_steps < 0:
        raise UsageError(f"curve steps {settings.curve_steps}: must be 0 or more")
    if settings.lock_clocks_mhz is not None and settings.lock_clocks_mhz < 1:
        raise UsageError(f"lock clocks {settings.lock_clocks_mhz}: must be 1 MHz or more, such as 1500")
    if settings.precision is not None and not 0 < settings.precision < 1:
        raise UsageError(f"precision {settings.precision:g}: must be a share above 0% and below 100%, such as 1%")
    of_times = {
        "--precision": settings.precision,
        "--profile": ",".join(settings.profile),
        "--lock-clocks": settings.lock_clocks_mhz,
    }
    for option, asked in of_times.items():
        if settings.at_once > 1 and asked:
            raise UsageError(
                f"at once {settings.at_once}: {option} is for times, and side by side there are none; leave one out"
            )
    seconds_of = {"budget": settings.budget_s, "timeout": settings.timeout_s, "time cap": settings.time_cap_s}
    for name, seconds in seconds_of.items():
        if not 0 < seconds < float("inf"):
            raise UsageError(f"{name} {seconds}: must be a positive number of seconds")


def check_time_cap(seconds: float | None, precision: float | None) -> None:
    """Raise UsageError for a cap on what nobody asked for."""
    if seconds is not None and precision is None:
        raise UsageError(f"--time-cap {seconds:g}: ends what --precision asks for; give that, too")


def cut(dataset: Dataset, batch_size: int, max_steps: int | None) -> Dataset:
    """The data of epochs of so many steps at most; no more images to test with, either, since float64 looks at them.

    Raises UsageError where that is none.
    """
    if max_steps is None:
        return dataset
    if max_steps < 1:
        raise UsageError(f"max steps {max_steps}: must be 1 or more")
    images = max(max_steps * batch_size, 1)
    return dataset.first(images, images)


def check_needs(own: Iterable[Entry]) -> None:
    """Raise UsageError for a stage of the user's that needs what nobody has heard of."""
    for entry in own:
        try:
            missing(entry.stage.needs)
        except ValueError as error:
            raise UsageError(f"--stage-file {entry.source.rpartition(':')[0]}: {error}") from error


def check_fits(problem: Problem, dataset: Dataset) -> None:
    """Raise UsageError when the data has not even one full batch, or the network no room in memory."""
    images = len(dataset.train.images)
    if problem.batch_size > images:
        raise UsageError(
            f"batch size {problem.batch_size}: {dataset.name} has {images} training images; choose {images} or fewer"
        )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    parameters = sum((layer.fan_in + 1) * layer.fan_out for layer in problem.layers)
    if parameters * ORACLE_BYTES > memory:
        raise UsageError(
            f"hidden {','.join(map(str, problem.hidden))}: {parameters:,} parameters, for which the float64 oracle has "
            f"no room in {memory >> 30} GiB of memory; choose smaller layers"
        )


def gpu_has_no_room(problem: Problem, images: int, memory_mib: float | None) -> str | None:
    """Why a stage on a GPU with so much memory would find no room, as estimated; None where it will, or nobody knows.

    What all stages hold: images and parameters with their gradients, and what goes forward and back through the layers.
    """
    parameters = sum((layer.fan_in + 1) * layer.fan_out for layer in problem.layers)
    units = sum(layer.fan_out for layer in problem.layers)
    numbers = images * problem.inputs + 2 * parameters + 2 * problem.batch_size * units
    needed_mib = numbers * 4 / 2**20 + CONTEXT_MIB
    if memory_mib is None or needed_mib <= memory_mib:
        return None
    return (
        f"needs about {needed_mib / 1024:,.0f} GiB of GPU memory, this GPU has {memory_mib / 1024:,.0f} GiB; "
        "choose smaller layers"
    )


def describe_problem(problem: Problem, dataset: Dataset, max_steps: int | None = None) -> ProblemRecord:
    """The problem and its data, as the results file keeps them."""
    return ProblemRecord(
        dataset=dataset.name,
        is_mnist=dataset.is_mnist,
        dataset_source=dataset.source,
        dataset_sha256=dataset.sha256,
        train_images=len(dataset.train.images),
        test_images=len(dataset.test.images),
        inputs=problem.inputs,
        hidden=list(problem.hidden),
        classes=problem.classes,
        batch_size=problem.batch_size,
        learning_rate=problem.learning_rate,
        epochs=problem.epochs,
        seed=problem.seed,
        metrics_every=problem.metrics_every,
        validate_every=problem.validate_every,
        max_steps=max_steps,
    )
