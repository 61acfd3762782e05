"""What a step of each stage should take, by a model of the recorded runs; it says beforehand which rungs should lose.

A step is a sum of terms: microseconds for each layer, weight, product or barrier. `python -m tools.fit_costs` fits them
and writes expected_costs.json; docs/method.md tells how far the model is wrong.
"""

from __future__ import annotations

import functools
import math
from contextlib import suppress
from pathlib import Path

import msgspec

from common.cost import Exchanges, parameters
from common.errors import MisfitError
from common.problem import Problem
from ladder.records.expectation import Expected
from stages.engine.stage import Stage
from stages.registry import load_all

FILE = Path(__file__).with_name("expected_costs.json")
LAUNCHED = {"torch-eager", "torch-compile"}  # their time is the host's launches
LOSS = 0.05  # share by which a rung must lose, beyond
SURE = 1.9  # times the model's error
RANGED = 9  # networks that a range of nine in ten needs: of fewer, no error is known to be the largest but one
SMALL_BATCH = 32  # the most images that the streamed kernels take


class RungCost(msgspec.Struct, frozen=True):
    """The fitted terms of one stage, and their errors on networks left out."""

    on: str  # the rung whose time they change; empty if they are the whole time
    us: dict[str, float]  # by the names of `terms`
    error: float  # root mean square of the logarithms
    median: float  # as a share of the time, as is
    most: float  # of nine networks in ten
    again: float  # share by which nine in ten recordings of the same network differ; as `median` without such
    networks: int  # each with its batch size
    prepare_s: float  # to load and compile, the median of all runs
    prepare_ends_s: list[float]  # of nine in ten of them


class RecordedRun(msgspec.Struct, frozen=True):
    """A run that the model was fitted to, or another recorded one."""

    commit: str
    hidden: list[int]
    batch_size: int
    us: dict[str, float]  # per step, of its stages that have a model, and of those shown where they are recorded
    prepare_s: dict[str, float] = {}  # of the latter
    inputs: int = 784
    classes: int = 10

    @property
    def problem(self) -> Problem:
        """Its network and batch."""
        return Problem(self.inputs, self.classes, tuple(self.hidden), self.batch_size)


class Costs(msgspec.Struct, frozen=True):
    """The model: the GPU that it is of, the runs that it was fitted to, and the terms of the stages."""

    gpu: str
    host: str  # the processor of its machine
    launch_us: float  # of a kernel from Python, back to back
    multiprocessors: int
    block_shared_bytes: int
    runs: dict[str, RecordedRun]  # by their folders among the GPU's
    wider: float  # share by which an error's logarithm grows with each doubling to the nearest network, but the first
    largest: dict[str, float]  # of every term of a network, over the runs
    dataloader: list[float]  # the least and most times of an eager step that it takes with a DataLoader
    rungs: dict[str, RungCost]

    def has_range(self, name: str) -> bool:
        """Whether a stage has a range for nine in ten times: enough networks recorded it and the rungs it adds to."""
        while name in self.rungs and self.rungs[name].networks >= RANGED:
            if not (name := self.rungs[name].on):
                return True
        return False

    @property
    def eager_differs(self) -> float:
        """How many times as long a network's eager or compiled step took in one recording as in another, at most."""
        same: dict[tuple[str, tuple[int, ...], int], list[float]] = {}
        for run in self.runs.values():
            for name in LAUNCHED & run.us.keys():
                same.setdefault((name, tuple(run.hidden), run.batch_size), []).append(run.us[name])
        return max((max(us) / min(us) for us in same.values()), default=1.0)


@functools.cache
def recorded_costs() -> Costs:
    """The model in the repository."""
    return msgspec.json.decode(FILE.read_bytes(), type=Costs)


def network_terms(problem: Problem) -> dict[str, float]:
    """The size of each term that is the same for every rung, in one step."""
    weights = parameters(problem) / 1e6
    products = problem.batch_size * weights
    return {
        "step": 1.0,
        "layer": float(len(problem.layers)),
        "image": float(problem.batch_size),
        "million weights": weights,
        "million products": products,
        "million outputs": problem.batch_size * sum(problem.hidden) / 1e6,
        "million products, small batch": products if problem.batch_size <= SMALL_BATCH else 0.0,
    }


def terms(stage: Stage, problem: Problem, steps: int, multiprocessors: int, shared_bytes: int) -> dict[str, float]:
    """The size of each term in one step of a rung; those of its plan only if that fits this GPU."""
    exchanges = Exchanges()
    with suppress(MisfitError):
        exchanges = stage.exchanges(problem, steps, multiprocessors, shared_bytes)
    of_layers = {"image of a layer": float(problem.batch_size * len(problem.layers))}
    return network_terms(problem) | of_layers | {"hop": float(exchanges.cluster_hops)} | exchanges.terms


def doublings(problem: Problem, other: Problem) -> float:
    """How often layers, weights and batch double from one network to the other, together; 0 for the same network."""
    if (other.layers, other.batch_size) == (problem.layers, problem.batch_size):
        return 0.0
    apart = sum(abs(math.log2(a / b)) for a, b in zip(size_of(problem), size_of(other), strict=True))
    return apart or 1.0  # the same layers in another order


def size_of(problem: Problem) -> tuple[int, int, int]:
    """Layers, parameters, and images of a batch."""
    return len(problem.layers), parameters(problem), problem.batch_size


def expected_here(problem: Problem, steps: int, gpu: str | None) -> dict[str, Expected]:
    """The estimates for a run; none on another GPU than the model's, of several networks, or with timed validation."""
    is_known = gpu == recorded_costs().gpu and not problem.validate_every and problem.networks == 1
    return expectations(problem, steps) if is_known else {}


def expectations(problem: Problem, steps: int, costs: Costs | None = None) -> dict[str, Expected]:
    """The estimate of every rung that has a model and takes this problem, by name in ladder order.

    None of a network that is larger than all recorded ones.
    """
    costs, expected = costs or recorded_costs(), dict[str, Expected]()
    if any(size > costs.largest[term] for term, size in network_terms(problem).items()):
        return expected
    stages = {name: entry.stage for name, entry in load_all().items() if name in costs.rungs}
    parts: dict[str, set[str]] = {}  # the rungs whose terms make up an estimate

    def error(ours: set[str], theirs: set[str]) -> float:
        """The error of the ratio of two estimates; terms that both have cancel."""
        return math.hypot(*(costs.rungs[name].error for name in ours ^ theirs))

    for name, stage in stages.items():
        own = costs.rungs[name]
        if (own.on and own.on not in expected) or stage.misfit(problem, steps):
            continue
        known = terms(stage, problem, steps, costs.multiprocessors, costs.block_shared_bytes)
        if not own.us.keys() <= known.keys():
            continue
        us = sum(each * known[term] for term, each in own.us.items()) + (expected[own.on].us if own.on else 0.0)
        if us <= 0:  # too far from the recorded networks
            continue
        parts[name] = {name} | parts.get(own.on, set())
        surest, rival = max(
            (
                ((us / other.us - 1 - LOSS) / error(parts[name], parts[rung]), rung)
                for rung, other in expected.items()
                if stages[rung].precision in ("float32", stage.precision)
                and "reference" not in (stage.group, stages[rung].group)
            ),
            default=(0.0, ""),
        )
        below, loses = expected.get(stage.below or ""), surest > SURE
        expected[name] = Expected(
            us=us,
            error=error(parts[name], set()),
            gpu=costs.gpu,
            times_from=below.us / us if below else None,
            loses_to=rival if loses else "",
            loses_to_us=expected[rival].us if loses else None,
        )
    return expected
