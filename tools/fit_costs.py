"""Fit the model of expected times to the recorded runs of one GPU, and write it: `python -m tools.fit_costs`.

The step of a stage that many networks have recorded is a sum of terms. Other rungs change the time of the rung below
by a term or two. A network with its batch size is one point. Its error, as a logarithm, is that of a fit to all points
that are not like it; a stage whose error exceeds 40 % gets no model. The errors, and how many remarks on networks left
out are right, go to docs/method.md.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear, nnls  # codespell:ignore optimize

from common.files import atomic_write
from common.problem import Problem
from ladder.records.program import ROOT
from ladder.records.run import all_results, load
from ladder.run.entries import IMAGES
from ladder.run.expected import (
    FILE,
    LOSS,
    Costs,
    RecordedRun,
    RungCost,
    doublings,
    expectations,
    network_terms,
    size_of,
    terms,
)
from ladder.run.outlook import FOLDER
from reports.markdown.all_documents import between
from reports.writers.markdown import code, table
from stages.registry import load_all

MOST_ERROR = 0.4
ALIKE = 1.5  # networks within this factor in layers, weights and batch foretell each other too easily
LEAST = 0.01  # of a time, that an estimate counts as
FAR, FEWEST = 4, 6  # doublings to the nearest network, and networks that a fit needs
ITERATIONS = 30  # each halves the distance to the smallest errors
DRAWN = "networks.json"  # networks drawn by seeds 80 to 82, and a few of 784 inputs, one process each: docs/method.md
PAGE = ROOT / "docs" / "method.md"
ENDS = "<!-- costs:begin (python -m tools.fit_costs) -->", "<!-- costs:end -->"
KERNELS = ("step", "layer", "million weights", "million products")
WITH_IMAGES = (*KERNELS, "image")
OUTPUTS = ("layer", "million weights", "million outputs")
WITH_LAYERS = (*KERNELS, "image of a layer")
WITH_OUTPUTS = (*KERNELS, "million outputs")
GRID = (
    "step", "barrier", "thousand cycles", "thousand cycles, weights in L2", "thousand weights of rows",
    "layers of rows",
)  # fmt: skip
CLUSTER = ("step", "hop", "image", "million weights", "thousand bytes of messages")
AHEAD, MESSAGES = ("step", "image", "million weights"), ("step", "layer", "thousand bytes of sums")
DIVIDED = ("step", "block with images", "fragment")
DIVIDED_HIDDEN = ("step", "share of images", "tile of weights", "thousand bytes of outputs", "tile of classes")
WHOLE = {
    "torch-eager": ("step", "layer"), "torch-compile": ("step", "layer", "million products"),
    "torch-graph": WITH_OUTPUTS, "torch-graph-amp": OUTPUTS, "jax-scan": WITH_OUTPUTS, "jax-scan-bf16": WITH_OUTPUTS,
    "cuda-graph": KERNELS, "fused-bias": KERNELS, "fp16": WITH_LAYERS, "exact-u8": WITH_OUTPUTS,
    "streamed-bf16": WITH_LAYERS, "large-batch": WITH_IMAGES, "large-batch-fp16": WITH_IMAGES,
    "large-batch-wide": OUTPUTS, "large-batch-plain": OUTPUTS,
    "large-batch-early": WITH_IMAGES, "large-batch-early-fp16": WITH_IMAGES,
    "persistent-grid": GRID, "grid-bf16": GRID, "grid-pairs-bf16": ("barrier", "thousand cycles"),
    "grid-messages": MESSAGES, "grid-messages-fp16": MESSAGES,
    "persistent-cluster": CLUSTER, "cluster-fp16": CLUSTER, "cluster-ahead": AHEAD, "cluster-ahead-fp16": AHEAD,
    "divided-batch": DIVIDED, "divided-batch-fp16": DIVIDED, "divided-hidden-fp16": DIVIDED_HIDDEN,
}  # fmt: skip
CHANGES = {
    "fused-head": ("step",), "fused-update": ("million weights",), "fused-epilogue": ("layer",),
    "parallel-branches": ("layer",), "skinny-gemm": ("layer",), "dependent-launch": ("layer",),
    "tf32": ("layer", "million products"), "bf16": ("layer", "million products"),
    "streamed": ("million products, small batch",),
    "last-layer": ("step", "image"), "last-layer-bf16": ("step", "image"),
}  # fmt: skip

FloatArray = NDArray[np.float64]


class Timed(NamedTuple):
    """A rung's time on a network, and that of the rung below in the same runs or 0, both in us."""

    us: float
    below_us: float
    sizes: dict[str, float]


Points = dict[str, dict[Problem, Timed]]  # by rung, then by network and batch


def main() -> int:
    """Fit and write; returns the exit code."""
    model, points = fitted_costs()
    atomic_write(FILE, msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n")
    atomic_write(PAGE, with_errors(PAGE.read_text(encoding="utf-8"), model, points))
    print(f"no model, error above {MOST_ERROR:.0%}: {', '.join(points.keys() - model.rungs.keys()) or 'none'}")
    return 0


def with_errors(text: str, model: Costs, points: Points) -> str:
    """The page with today's errors between its markers; ReportError without markers."""
    judged = Counter(verdict for network in networks_of(points) for verdict in verdicts(model, points, network))
    header = ("stage", "networks", "median error", "nine in ten within")
    whole = {name: rung for name, rung in model.rungs.items() if not rung.on}
    rows = [(code(name), f"{one.networks}", f"{one.median:.0%}", f"{one.most:.0%}") for name, one in whole.items()]
    told = (
        f"The error's logarithm grows by {model.wider:.0%} with each doubling of the distance to the nearest recorded "
        f"network, beyond the first. Of the remarks that a rung should lose (below), {judged['right']} were right on "
        f"networks left out, {judged['wrong']} wrong, and {judged['unmeasured']} named a rung that was not measured. "
        f"{judged['missed']} losses of more than {LOSS:.0%} got no remark."
    )
    return between(text, PAGE, ENDS, f"{table(header, rows, right=[False, True, True, True])}\n\n{told}")


def fitted_costs(folder: Path = ROOT / FOLDER) -> tuple[Costs, Points]:
    """The model of recorded runs of one network on one GPU, none of which validates in the timer, and their times."""
    records = {str(file.parent.relative_to(folder)): load(file) for file in all_results(folder, "**")}
    told = {name: (run.problem.validate_every, run.problem.networks, run.problem.gpus) for name, run in records.items()}
    runs = {name: run for name, run in records.items() if told[name] == (0, 1, 1) and any(s.timing for s in run.stages)}
    (gpu,) = {run.environment["gpu"]["name"] for run in runs.values()}
    (host,) = {run.environment["cpu"]["model"] for run in runs.values()}
    chip = next(run.limits.chip for run in runs.values() if run.limits and run.limits.chip.block_shared_bytes)
    launches = [limit.median for run in runs.values() if run.limits and (limit := run.limits.get("launch"))]
    stages = {name: entry.stage for name, entry in load_all().items()}
    recorded, prepare_s = dict[str, RecordedRun](), dict[str, list[float]]()
    for name, run in runs.items():
        timings = {stage.name: stage.timing for stage in run.stages if stage.timing}
        for own, timing in timings.items():
            prepare_s.setdefault(own, []).append(timing.prepare_s)
        recorded[name] = RecordedRun(
            run.environment["code"]["git_commit"],
            run.problem.hidden,
            run.problem.batch_size,
            {own: timing.step_us for own, timing in timings.items()},
            inputs=run.problem.inputs,
            classes=run.problem.classes,
        )
    loaded = [run.us for run in recorded.values() if {"torch-dataloader", "torch-eager"} <= run.us.keys()]
    loading = [us["torch-dataloader"] / us["torch-eager"] for us in loaded]
    recorded |= drawn_networks(folder)
    times: dict[str, dict[Problem, list[Timed]]] = {}
    for timed in recorded.values():
        problem, us = timed.problem, timed.us
        for name in sorted({*WHOLE, *CHANGES} & us.keys()):
            below_us = us.get(stages[name].below or "", 0.0) if name in CHANGES else 0.0
            if name in WHOLE or below_us:
                steps = problem.steps(IMAGES)
                sized = terms(stages[name], problem, steps, chip.multiprocessors, chip.block_shared_bytes)
                if {*(WHOLE.get(name) or CHANGES[name])} <= sized.keys():
                    times.setdefault(name, {}).setdefault(problem, []).append(Timed(us[name], below_us, sized))
    points = {name: {network: middle(points) for network, points in of.items()} for name, of in times.items()}
    rungs = dict[str, RungCost]()
    for name, stage in stages.items():
        if name in points:
            known, below = list(times[name].values()), stage.below or ""
            took_s = prepare_s.setdefault(name, prepare_s.get(below, []))  # drawn networks have no times to prepare
            rungs[name] = rung_cost(name, points[name], below, known, took_s)
    kept = {name: rung for name, rung in rungs.items() if rung.error <= MOST_ERROR}
    networks = [network_terms(network) for network in networks_of(points)]
    largest = {term: max(network[term] for network in networks) for term in networks[0]}
    recorded = {
        name: msgspec.structs.replace(one, us={stage: round(us, 3) for stage, us in one.us.items() if stage in kept})
        for name, one in recorded.items()
    }
    launch_us = round(statistics.median(launches), 2)
    chip_sizes = chip.multiprocessors, chip.block_shared_bytes
    dataloader = [round(end, 2) for end in (min(loading), max(loading))]
    return Costs(gpu, host, launch_us, *chip_sizes, recorded, wider(kept, points), largest, dataloader, kept), points


def drawn_networks(folder: Path) -> dict[str, RecordedRun]:
    """The networks in DRAWN, by the file's name and their number."""
    if not (file := folder / DRAWN).exists():
        return {}
    found = msgspec.json.decode(file.read_bytes(), type=list[RecordedRun])
    return {f"{DRAWN} {number}": run for number, run in enumerate(found)}


def middle(points: Sequence[Timed]) -> Timed:
    """The medians over the runs of one network."""
    return Timed(
        statistics.median(p.us for p in points), statistics.median(p.below_us for p in points), points[0].sizes
    )


def rung_cost(
    name: str, points: Mapping[Problem, Timed], below: str, known: Sequence[Sequence[Timed]], prepare_s: list[float]
) -> RungCost:
    """The fitted terms of a stage, and their error on networks left out."""
    errors = []
    for network, point in points.items():
        us = fit(name, [other for own, other in points.items() if not is_alike(own, network)])
        expected = point.below_us + sum(us[term] * point.sizes[term] for term in us)
        errors.append(abs(math.log(max(expected / point.us, LEAST))))
    # Of two recordings, each is as far from the other as the square root of two from the middle.
    pairs = [abs(math.log(a.us / b.us)) / math.sqrt(2) for same in known for a, b in itertools.combinations(same, 2)]
    return RungCost(
        on=below if name in CHANGES else "",
        us=fit(name, list(points.values())),
        error=round(math.sqrt(statistics.fmean(error**2 for error in errors)), 3),
        median=round(math.expm1(statistics.median(errors)), 3),
        most=round(math.expm1(nine_in_ten(errors)), 3),
        again=round(math.expm1(float(np.quantile(pairs, 0.9))) if pairs else math.expm1(statistics.median(errors)), 3),
        networks=len(points),
        prepare_s=round(statistics.median(prepare_s), 1),
        prepare_ends_s=[round(float(end), 1) for end in np.quantile(prepare_s, [0.05, 0.95])],
    )


def nine_in_ten(errors: Sequence[float]) -> float:
    """The error that one more network stays below in nine of ten cases, if it is drawn as these were; of few, the most.

    So many of n + 1 equally likely ranks are nine tenths of them: a range needs nine networks (`RANGED`).
    """
    return sorted(errors)[min(math.ceil(0.9 * (len(errors) + 1)), len(errors)) - 1]


def wider(rungs: Mapping[str, RungCost], points: Points) -> float:
    """How the errors of whole times grow where all networks within `FAR` doublings are left out."""
    factors = []
    for name in WHOLE.keys() & rungs.keys():
        for problem, point in points[name].items():
            kept = [other for network, other in points[name].items() if doublings(problem, network) >= FAR]
            if len(kept) >= FEWEST:
                us = fit(name, kept)
                error = abs(math.log(max(sum(us[term] * point.sizes[term] for term in us) / point.us, LEAST)))
                factors.append(error / math.log1p(rungs[name].most))
    return round((float(np.quantile(factors, 0.9)) - 1) / (FAR - 1), 2)


def without(points: Mapping[Problem, Timed], network: Problem) -> list[Timed]:
    """All points but one network's."""
    return [point for other, point in points.items() if other != network]


def is_alike(network: Problem, other: Problem) -> bool:
    """Whether two networks are nearly the same in layers, weights and batch."""
    return all(max(pair) <= ALIKE * min(pair) for pair in zip(size_of(network), size_of(other), strict=True))


def fit(name: str, points: Sequence[Timed]) -> dict[str, float]:
    """The microseconds of each term that make the smallest errors.

    A whole time has terms of 0 or more, and its errors count as logarithms. A change may be negative; its errors are
    relative.
    """
    wanted = WHOLE.get(name) or CHANGES[name]
    sizes = np.array([[point.sizes[term] for term in wanted] for point in points])
    us = np.array([point.us for point in points])
    if name in WHOLE:
        solved = smallest_log_errors(sizes, us)
    else:
        below = np.array([point.below_us for point in points])
        solved = lsq_linear(sizes / below[:, None], (us - below) / below).x
    return {term: round(float(each), 4) for term, each in zip(wanted, solved, strict=True)}


def smallest_log_errors(sizes: FloatArray, us: FloatArray) -> FloatArray:
    """The terms (T,), 0 or more, that make the smallest squares of log(sizes @ terms / us).

    `sizes` (N, T) and `us` (N,) are positive somewhere in every row. Gauss-Newton steps of half the length, from the
    smallest relative errors.
    """
    terms = nnls(sizes / us[:, None], np.ones(len(us)))[0]
    for _ in range(ITERATIONS):
        expected = np.maximum(sizes @ terms, LEAST * us)
        slopes = sizes / expected[:, None]
        terms = (terms + nnls(slopes, slopes @ terms + np.log(us / expected))[0]) / 2
    return cast(FloatArray, terms)


def networks_of(points: Points) -> list[Problem]:
    """Every recorded network with its batch size."""
    return sorted(
        {network for of_rung in points.values() for network in of_rung}, key=lambda one: (size_of(one), one.hidden)
    )


def verdicts(model: Costs, points: Points, network: Problem) -> Iterator[str]:
    """Whether a model without a network finds its losers: `right`, `wrong`, `missed`, or the rival is `unmeasured`."""
    rungs = {
        name: msgspec.structs.replace(rung, us=fit(name, without(points[name], network)))
        for name, rung in model.rungs.items()
    }
    expected = expectations(network, network.steps(60_000), msgspec.structs.replace(model, rungs=rungs))
    stages = {name: entry.stage for name, entry in load_all().items()}
    rungs_here = [name for name in expected if stages[name].group != "reference" and network in points[name]]
    measured = {name: points[name][network].us for name in rungs_here}
    precision = {name: stages[name].precision for name in measured}
    for name, us in measured.items():
        if rival := expected[name].loses_to:
            yield "unmeasured" if rival not in measured else "right" if us / measured[rival] - 1 > LOSS else "wrong"
        else:
            earlier = [
                measured_name
                for measured_name in list(measured)[: list(measured).index(name)]
                if precision[measured_name] in ("float32", precision[name])
            ]
            if any(us / measured[measured_name] - 1 > LOSS for measured_name in earlier):
                yield "missed"


if __name__ == "__main__":
    sys.exit(main())
