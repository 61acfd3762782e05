"""Checks of the user's settings, data and network, before anything is started."""

from __future__ import annotations

import os
from collections.abc import Iterable

from common.data.dataset import Dataset
from common.errors import UsageError
from common.problem import Problem
from ladder.machine.environment import missing
from ladder.records.run import ProblemRecord, Settings
from stages.registry import Entry

# Per parameter in float64: value, gradient and initial value, and the results of three verified first updates.
ORACLE_BYTES = 56
CONTEXT_MIB = 600  # GPU memory of CUDA and its libraries, before a stage allocates any
MAX_RUNS = 450  # limit for timed runs and for warm-ups in a process: run numbers have room for 900 together


def check_settings(settings: Settings) -> None:
    """Raise UsageError for settings out of range, or that contradict each other."""
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
    timing_options = {
        "--precision": settings.precision,
        "--profile": ",".join(settings.profile),
        "--lock-clocks": settings.lock_clocks_mhz,
    }
    for option, asked in timing_options.items():
        if settings.at_once > 1 and asked:
            raise UsageError(
                f"at once {settings.at_once}: {option} needs times, and stages side by side get none; leave one out"
            )
    seconds_of = {"budget": settings.budget_s, "timeout": settings.timeout_s, "time cap": settings.time_cap_s}
    for name, seconds in seconds_of.items():
        if not 0 < seconds < float("inf"):
            raise UsageError(f"{name} {seconds}: must be a positive number of seconds")


def check_time_cap(seconds: float | None, precision: float | None) -> None:
    """Raise UsageError for a time cap without the precision that it limits."""
    if seconds is not None and precision is None:
        raise UsageError(f"--time-cap {seconds:g}: limits the rounds that --precision adds; give --precision, too")


def cut(dataset: Dataset, batch_size: int, max_steps: int | None) -> Dataset:
    """The images of `max_steps` steps per epoch, and at most as many test images; None cuts nothing.

    Test images are cut as well because float64 evaluates them. Raises UsageError for less than one step.
    """
    if max_steps is None:
        return dataset
    if max_steps < 1:
        raise UsageError(f"max steps {max_steps}: must be 1 or more")
    images = max(max_steps * batch_size, 1)
    return dataset.first(images, images)


def check_needs(own: Iterable[Entry]) -> None:
    """Raise UsageError for a user's stage with an unknown need."""
    for entry in own:
        try:
            missing(entry.stage.needs)
        except ValueError as error:
            raise UsageError(f"--stage-file {entry.source.rpartition(':')[0]}: {error}") from error


def check_fits(problem: Problem, dataset: Dataset) -> None:
    """Raise UsageError if the data has less than one batch, or the oracle needs more than the host's memory."""
    images = len(dataset.train.images)
    if problem.batch_size > images:
        raise UsageError(
            f"batch size {problem.batch_size}: {dataset.name} has {images} training images; choose {images} or fewer"
        )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    parameters = sum((layer.fan_in + 1) * layer.fan_out for layer in problem.layers)
    if parameters * ORACLE_BYTES > memory:
        raise UsageError(
            f"hidden {','.join(map(str, problem.hidden))}: the float64 oracle of {parameters:,} parameters does not "
            f"fit into {memory >> 30} GiB of memory; choose smaller layers"
        )


def gpu_has_no_room(problem: Problem, images: int, memory_mib: float | None) -> str | None:
    """Why a stage will not fit into the GPU's memory, by estimate; None if it fits or the memory is unknown.

    Every stage holds the images, the parameters with their gradients, and the activations with theirs.
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
    """The problem and its data, as the results file records them."""
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
