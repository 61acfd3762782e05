"""What each stage should take on a network and a GPU, with the range in which nine in ten should lie.

A network that was recorded on the GPU has its recorded times, also of stages without a model. Any other has the
model's, with the error that networks left out of the fit had. The logarithm of that error grows with the doublings to
the nearest recorded network, as it did where nearer ones were left out. On another GPU than the model's it is added
once more, or the error in networks recorded on both, and the range reaches from the model's time to one with the work
scaled: by the bandwidths of the two where the weights and gradients exceed the L2 cache, else by the multiprocessors
and their clocks.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from common.cost import parameters
from common.cuda.driver import devices
from common.errors import UsageError
from common.problem import Problem
from ladder.options.commands import Advise, Run
from ladder.records import torch_run
from ladder.records.expectation import CAPTURED, EXAMPLE, PLAIN, NearRun, Outlook, Outlooks, OwnModelRun
from ladder.records.program import ROOT
from ladder.records.run import Results, all_results, load_once
from ladder.run import expected
from ladder.run.entries import CLASSES, INPUTS, contenders, estimated
from ladder.run.expected import LAUNCHED, Costs, RecordedRun
from stages.engine.stage import Stage
from stages.registry import load_all


class Chip(NamedTuple):
    """What the guess needs to know of a GPU."""

    name: str
    memory_gb_s: float  # of its data sheet
    sm: int  # compute capability, such as 90
    multiprocessors: int
    clock_mhz: int  # boosted
    l2_mib: int
    launch_us: float | None = None  # of a kernel from Python, back to back, as `limits` measures it


MODELLED = Chip("H200", 4800, 90, 132, 1980, 60)  # to whose runs the model of expected times is fitted
CHIPS = (
    Chip("T4", 320, 75, 40, 1590, 4), Chip("A10", 600, 86, 72, 1695, 6), Chip("A100", 2039, 80, 108, 1410, 40),
    Chip("RTX 3060", 360, 86, 28, 1777, 3), Chip("RTX 3070", 448, 86, 46, 1725, 4),
    Chip("RTX 3080", 760, 86, 68, 1710, 5), Chip("RTX 3090", 936, 86, 82, 1695, 6), Chip("L4", 300, 89, 58, 2040, 48),
    Chip("L40S", 864, 89, 142, 2520, 96), Chip("RTX 4060", 272, 89, 24, 2460, 24),
    Chip("RTX 4070", 504, 89, 46, 2475, 36), Chip("RTX 4080", 717, 89, 76, 2505, 64),
    Chip("RTX 4090", 1008, 89, 128, 2520, 72), Chip("H100", 3350, 90, 132, 1980, 50), MODELLED,
    Chip("RTX 5070", 672, 120, 48, 2512, 48), Chip("RTX 5080", 960, 120, 84, 2617, 64),
    Chip("RTX 5090", 1792, 120, 170, 2407, 96), Chip("B200", 8000, 100, 148, 1965, 126),
)  # fmt: skip
UNKNOWN = Chip("", 0, 80, 108, 1410, 40)  # counts as an A100 but for the limits that the user names
LIMITS = {"--bandwidth": ("GB/s of a GPU's memory", 10, 100_000), "--launch": ("us of a launch from Python", 0.5, 50)}
OTHER_KIND = {"laptop", "mobile", "max", "ti", "super", "d"}  # words after a name that make it another GPU
BLOCK_SHARED_KIB = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}  # CUDA C++ Programming Guide, table 29


def chip_named(name: str, bandwidth: float | None, launch_us: float | None) -> Chip:
    """The GPU of this name, with the limits that the user gives; UsageError if neither is known, or one is absurd."""
    for option, value in (("--bandwidth", bandwidth), ("--launch", launch_us)):
        words, least, most = LIMITS[option]
        if value is not None and not least <= value <= most:
            raise UsageError(f"{option} {value:g}: the {words}, from {least:g} to {most:,}")
    asked = _words(name)
    fits = [chip for chip in CHIPS if _is_named(chip, asked)]
    fits = fits or [chip for chip in CHIPS if asked and asked == _words(chip.name)[1:]]  # `4090`
    if not fits and bandwidth is None:
        last = [word for word in asked if word not in OTHER_KIND][-1:]
        near = [chip.name for chip in CHIPS if _words(chip.name)[-1:] == last]
        near += [chip.name for chip in CHIPS if sorted("".join(_words(chip.name))) == sorted("".join(asked))]
        known = f'did you mean "{near[0]}"?' if near else f"choose one of {', '.join(chip.name for chip in CHIPS)}"
        raise UsageError(f"--gpu {name}: not known; add --bandwidth GB/S of its memory, or {known}")
    chip = max(fits, key=lambda chip: len(chip.name), default=UNKNOWN._replace(name=name))
    return chip._replace(memory_gb_s=bandwidth or chip.memory_gb_s, launch_us=launch_us)


def is_recorded_as(name: str, folder: str) -> bool:
    """Whether a folder such as `h100-80gb-hbm3` holds runs of the GPU of this name, as far as the name tells."""
    asked = _words(name)
    return bool(asked) and _words(folder)[: len(asked)] == asked


def _is_named(chip: Chip, asked: list[str]) -> bool:
    own = _words(chip.name)
    return asked[: len(own)] == own and not OTHER_KIND & {*asked[len(own) :]}


def _words(name: str) -> list[str]:
    """`NVIDIA GeForce RTX 4090` and `rtx4090` as `rtx`, `4090`."""
    model = re.sub(r"(?i)\b(nvidia|geforce|tesla|gpu)\b", "", name).strip().lower()
    model = re.sub(r"(?<=\d)(?=(ti|super|d)\b)", " ", re.sub(r"^rtx[ -]?", "rtx ", model))
    words = re.findall(r"[a-z]+\d*[a-z]*|\d+[a-z]*", model)
    return [str(word) for word in words]


PLAIN_PROBLEM = Problem(784, 10, (256,), 128)  # the network of `PLAIN`, which the rows here have as well
MORE_KERNELS = 1.5  # times, at most, that another optimizer, dropout or norms add to a captured step's, or a GPU does
FOLDER = "results/reference/h200"  # of the runs that the model was fitted to
MOST_NEAR = 2
AGAIN = 0.09  # share by which nine in ten recordings of the same network differ, at most; own rungs on an H100: 3%
BUDGET_S = 10.0  # of all stages together, for `--measure`


def outlooks(asked: Advise) -> Outlooks:
    """The outlook for what was asked; UsageError for an unknown GPU, or a network larger than all recorded ones."""
    costs, problem = expected.recorded_costs(), asked.options.problem(asked.inputs, asked.classes)
    if asked.rows < problem.batch_size:
        raise UsageError(f"--rows {asked.rows}: fewer than a batch of {problem.batch_size}; choose more")
    own = [device.name for device in devices()]
    name = asked.gpu or (own[0] if own else costs.gpu)
    chip = chip_named(name, asked.bandwidth, asked.launch)
    is_recorded = chip == MODELLED
    runs = _recorded_on(MODELLED.name if is_recorded else name) if chip in CHIPS else {}
    steps = problem.steps(asked.rows)
    estimates = estimated(problem, steps, _on(chip, costs, lambda _: 1.0))
    ends = (
        [estimates, estimates]
        if is_recorded
        else [estimates, expected.expectations(problem, steps, _on(chip, costs, _scale(chip, problem)))]
    )
    stages = {name: entry.stage for name, entry in load_all().items()}
    own_runs = {path: run for path, run in runs.items() if not expected.doublings(problem, run.problem)}
    exact = list(own_runs.values())
    carrying = 0.0 if is_recorded else _carrying_error(chip) if runs else None
    of_host = 0.0 if is_recorded else None  # what the host launches, another one launches in another time
    carried = {name: [end[name].us for end in ends if name in end] for name in stages}
    rows = [
        _outlook(stage, problem, costs, carried[name], exact, of_host if name in LAUNCHED else carrying)
        for name, stage in stages.items()
        if any(name in run.us for run in exact)
        or (_runs_on(chip, stage) and costs.has_range(name) and all(name in end for end in ends))
    ]
    told = {row.name for row in rows}
    ignored = [
        *([f"--optimizer {asked.optimizer.lower()}"] if asked.optimizer != "SGD" else []),
        *([f"--dropout {asked.dropout:g}"] if asked.dropout else []),
    ]
    if asked.measured_eager is not None:
        rows = [
            msgspec.structs.replace(row, measured_us=asked.measured_eager) if row.name == "torch-eager" else row
            for row in rows
        ]
    models = _own_models(EXAMPLE if ignored else PLAIN)
    layer_us = _layer_us(costs, models)
    captured = _captured(len(problem.layers), rows, models, layer_us)
    rows = [*(_at_least(row, captured) for row in rows), *captured]
    recorded_in = [path for path, run in own_runs.items() if _has_references(run)]
    may_win = [] if ignored else contenders(problem, steps)  # rungs train by plain SGD alone
    return Outlooks(
        gpu=costs.gpu if is_recorded else chip.name,
        recorded_gpu=costs.gpu,
        host=costs.host,
        launch_us=chip.launch_us or costs.launch_us,
        eager_differs=costs.eager_differs,
        dataloader=costs.dataloader,
        no_gpu=not asked.gpu and not own,
        own_launch=asked.launch is not None,
        own_eager=asked.measured_eager is not None,
        guess="" if is_recorded else _guess(chip, costs, recorded_in, others=bool(runs)),
        network=_named(problem.inputs, problem.hidden, problem.classes),
        batch_size=problem.batch_size,
        epochs=problem.epochs,
        images=asked.rows,
        steps_per_epoch=steps,
        stages=rows,
        untold=[name for name in may_win if name not in told and _runs_on(chip, stages[name])],
        nearest=_nearest(problem, runs or _recorded_on(MODELLED.name)),
        optimizer=asked.optimizer,
        ignored=ignored,
        own_model=models[0] if models else None,
        own_models=models,
        layer_us=layer_us,
    )


def _own_models(first: str) -> list[OwnModelRun]:
    """The recorded PyTorch models whose recipe is one CUDA graph per step: this one, then the quickest."""
    files = (ROOT / FOLDER / "torch").glob(f"*/{torch_run.FILE}")
    models = filter(None, (_own_model(file.parent) for file in files))
    return sorted(models, key=lambda model: (model.name != first, model.graph_us))


@cache
def _own_model(folder: Path) -> OwnModelRun | None:
    """A recorded PyTorch model; None if its recipe is another."""
    run = torch_run.load(folder)
    recipe, model = run.recipe(), run.model
    graph = run.rung(recipe.rung) if recipe else None
    if not (recipe and graph and graph.step_us and "step-graph" in graph.changes):
        return None
    return OwnModelRun(
        path=folder.relative_to(ROOT).as_posix(),
        name=folder.name,
        gpu=MODELLED.name,
        optimizer=model.optimizer,
        has_dropout=model.has_dropout,
        parameters=model.parameters,
        batch_size=model.batch_size,
        epochs=recipe.epochs,
        prepare_s=run.first_step_s(graph),
        graph_us=graph.step_us,
    )


def _layer_us(costs: Costs, models: Sequence[OwnModelRun]) -> float | None:
    """What each layer of a captured step takes beyond a compiled epoch's; None without a record of both."""
    compiled = [
        run.us["torch-graph"]
        for run in costs.runs.values()
        if "torch-graph" in run.us and not expected.doublings(PLAIN_PROBLEM, run.problem)
    ]
    plain = next((model for model in models if model.name == PLAIN), None)
    if not compiled or plain is None:
        return None
    return (plain.graph_us - statistics.median(compiled)) / len(PLAIN_PROBLEM.layers)


def _captured(
    layers: int, rows: Sequence[Outlook], models: Sequence[OwnModelRun], layer_us: float | None
) -> list[Outlook]:
    """One CUDA graph per step: `torch-graph`'s time, and more kernels for each layer; none where no record tells."""
    named = {row.name: row for row in rows}
    graph, eager = named.get("torch-graph"), named.get("torch-eager")
    if graph is None or eager is None or layer_us is None:
        return []
    more_us, prepare_s = layer_us * layers, models[0].prepare_s
    us, low_us, high_us = [graph.measured_us] * 3 if graph.measured_us else (graph.us, graph.low_us, graph.high_us)
    captured = msgspec.structs.replace(
        graph,
        name=CAPTURED,
        words="PyTorch, one CUDA graph per step",
        us=us + more_us,
        low_us=low_us + more_us / MORE_KERNELS,
        high_us=high_us + more_us * MORE_KERNELS,
        carried_us=[us + more_us for us in graph.carried_us],
        is_recorded=False,
        prepare_s=eager.prepare_s + prepare_s,
        prepare_ends_s=[end_s + prepare_s for end_s in eager.prepare_ends_s],
        measured_us=None,
    )
    return [captured]


def _at_least(row: Outlook, captured: Sequence[Outlook]) -> Outlook:
    """Eager mode's estimate, no less than the graph's: a replay runs the same kernels without the host's gaps."""
    if row.name != "torch-eager" or row.is_recorded or not captured:
        return row
    graph = captured[0]
    return msgspec.structs.replace(
        row,
        us=max(row.us, graph.us),
        low_us=max(row.low_us, graph.low_us),
        high_us=max(row.high_us, graph.high_us),
        carried_us=[max(ends) for ends in zip(row.carried_us, graph.carried_us, strict=True)],
    )


def _named(inputs: int, hidden: Iterable[int], classes: int) -> str:
    return "-".join(map(str, (inputs, *hidden, classes)))


def measuring(asked: Advise, names: Iterable[str]) -> Run:
    """A short run of these stages; UsageError without a GPU."""
    if not devices():
        raise UsageError("--measure: needs an NVIDIA GPU, and this machine has none; leave it out")
    options = msgspec.structs.replace(asked.options, stages=tuple(name for name in names if name != CAPTURED))
    if options.budget is None and options.budget_total is None:
        options = msgspec.structs.replace(options, budget_total=BUDGET_S, rounds=1, profile=(), remeasure=0)
    return Run(options=options)


def with_measured(asked: Outlooks, results: Results) -> Outlooks:
    """The outlook with the times that a run measured."""
    times = {stage.name: stage.timing for stage in results.stages if stage.timing}
    stages = [stage for stage in asked.stages if stage.name != CAPTURED]
    for name in times.keys() & {*asked.untold}:
        run = RecordedRun("", [], 1, {name: times[name].step_us}, {name: times[name].prepare_s})
        stages.append(_outlook(load_all()[name].stage, run.problem, expected.recorded_costs(), [], [run], 0.0))
    stages = [
        msgspec.structs.replace(
            stage, measured_us=timing.step_us, prepare_s=timing.prepare_s, prepare_ends_s=[timing.prepare_s] * 2
        )
        if (timing := times.get(stage.name))
        else stage
        for stage in stages
    ]
    stages += _captured(asked.network.count("-"), stages, asked.own_models, asked.layer_us)
    return msgspec.structs.replace(asked, stages=stages, untold=[name for name in asked.untold if name not in times])


def _recorded_on(name: str) -> dict[str, RecordedRun]:
    """The recorded runs of one network on a GPU of this name, by their folders; none validates in the timer."""
    costs, found = expected.recorded_costs(), dict[str, RecordedRun]()
    told = {*costs.rungs, *(name for name, entry in load_all().items() if entry.stage.group == "beyond")}
    for file in all_results((ROOT / FOLDER).parent, "**"):
        path = file.parent.relative_to(ROOT)
        if is_recorded_as(name, path.parts[2]):
            problem, timings = (run := load_once(file)).problem, {s.name: s.timing for s in run.stages if s.timing}
            if (problem.validate_every, problem.networks, problem.gpus) == (0, 1, 1):
                us = {stage: round(timings[stage].step_us, 3) for stage in timings if stage in told}
                prepare_s = {stage: round(timings[stage].prepare_s, 3) for stage in us if stage not in costs.rungs}
                found[path.as_posix()] = RecordedRun("", problem.hidden, problem.batch_size, us, prepare_s)
    return found


@cache
def _carrying_error(chip: Chip) -> float | None:
    """The logarithm of the error in nine of ten times carried to a GPU, of networks recorded on both; None without any.

    Without stages that the host launches: theirs would be the difference of two hosts.
    """
    own, modelled = _recorded_on(chip.name).values(), _recorded_on(MODELLED.name).values()
    logs = []
    for run in own:
        scaled = math.log(_scale(chip, problem := run.problem)("million"))
        for name in run.us.keys() & expected.recorded_costs().rungs.keys() - LAUNCHED:
            same = [
                other.us[name]
                for other in modelled
                if name in other.us and not expected.doublings(problem, other.problem)
            ]
            if same:
                log = math.log(run.us[name] / statistics.median(same))
                logs.append(max(min(scaled, 0.0) - log, log - max(scaled, 0.0), 0.0))
    return float(np.quantile(logs, 0.9)) if logs else None


def _runs_on(chip: Chip, stage: Stage) -> bool:
    return all(chip.sm >= int(need[3:]) for need in stage.needs if need.startswith("sm_"))


def _outlook(
    stage: Stage,
    problem: Problem,
    costs: Costs,
    carried: list[float],
    exact: Iterable[RecordedRun],
    carrying: float | None,
) -> Outlook:
    """A stage's outlook from the GPU's own runs of this very network, `exact`.

    Without any it is from estimates in us, `carried` to the GPU without and with the work scaled. `carrying` is the
    error of that, as a logarithm; None counts the model's twice.
    """
    recorded = [run for run in exact if stage.name in run.us]
    rung = costs.rungs.get(stage.name) or _without_model(stage.name, recorded)
    most = _most_error(stage.name, costs)
    if recorded:
        carried = [statistics.median(run.us[stage.name] for run in recorded)] * 2
        # Nobody's host is the recorded one: where it sets the pace, the range is that of hosts.
        log_error = math.log(costs.eager_differs) if stage.name in LAUNCHED else math.log1p(rung.again)
    else:
        far = min(expected.doublings(problem, run.problem) for run in costs.runs.values() if stage.name in run.us)
        once_more = math.log1p(most) if carrying is None else carrying
        log_error = math.log1p(most) * (1 + costs.wider * max(far - 1, 0.0)) + once_more
    return Outlook(
        name=stage.name,
        words=stage.words or stage.title,
        group=stage.group,
        precision=stage.precision,
        regime=stage.regime,
        us=math.sqrt(math.prod(carried)),
        low_us=min(carried) * math.exp(-log_error),
        high_us=max(carried) * math.exp(log_error),
        carried_us=carried,
        is_recorded=bool(recorded),
        median_error=rung.median,
        most_error=most,
        networks=rung.networks,
        prepare_s=rung.prepare_s,
        prepare_ends_s=rung.prepare_ends_s,
    )


def _without_model(name: str, recorded: Sequence[RecordedRun]) -> expected.RungCost:
    """What is known of a stage that the model leaves out: how long it prepares, and how well its time repeats."""
    took_s = [run.prepare_s[name] for run in recorded]
    prepare_s, ends_s = statistics.median(took_s), [min(took_s), max(took_s)]
    return expected.RungCost("", {}, 0.0, 0.0, 0.0, again=AGAIN, networks=0, prepare_s=prepare_s, prepare_ends_s=ends_s)


def _most_error(name: str, costs: Costs) -> float:
    """The error of nine in ten networks, with those of the rungs that a rung's estimate adds to; 0 without a model."""
    logs = []
    while name in costs.rungs:
        logs.append(math.log1p(costs.rungs[name].most))
        name = costs.rungs[name].on
    return math.expm1(math.hypot(*logs))


def _nearest(problem: Problem, runs: Mapping[str, RecordedRun]) -> list[NearRun]:
    """The runs with the nearest networks, each network once, a run of its own before a study's point."""
    nearest: dict[tuple[tuple[int, ...], int], NearRun] = {}
    for path in sorted(runs, key=lambda path: ("/studies/" in path, path)):
        run = runs[path]
        near = NearRun(
            path,
            _named(INPUTS, run.hidden, CLASSES),
            run.hidden,
            run.batch_size,
            expected.doublings(problem, run.problem),
            run.us.get("torch-eager"),
        )
        if _has_references(run):
            nearest.setdefault((tuple(run.hidden), run.batch_size), near)
    return sorted(nearest.values(), key=lambda near: near.doublings)[:MOST_NEAR]


def _scale(chip: Chip, problem: Problem) -> Callable[[str], float]:
    """How many times as long another GPU takes for a term; those of kernels and waits stay the same."""
    clock = MODELLED.clock_mhz / chip.clock_mhz
    streams = 8 * parameters(problem) > chip.l2_mib << 20  # weights and gradients, in float32
    work = (
        MODELLED.memory_gb_s / chip.memory_gb_s if streams else clock * MODELLED.multiprocessors / chip.multiprocessors
    )

    def scale(term: str) -> float:
        # A plan's cycles are those of one of its multiprocessors, of which it knows the number.
        return work if term.startswith("million") else clock if term.startswith("thousand") else 1.0

    return scale


def _has_references(run: RecordedRun) -> bool:
    """Whether a run timed any way to train in PyTorch or JAX, as loss curves do not."""
    return bool((LAUNCHED | {"torch-graph", "jax-scan"}) & run.us.keys())


def _on(chip: Chip, costs: Costs, scale: Callable[[str], float]) -> Costs:
    """The model with another GPU's multiprocessors and launches, and its terms scaled."""
    launches = (chip.launch_us or costs.launch_us) / costs.launch_us

    def scaled(name: str, term: str, us: float) -> float:
        fixed = launches if name in LAUNCHED and not term.startswith("million") else 1.0
        return us * fixed * scale(term)

    rungs = {
        name: msgspec.structs.replace(rung, us={term: scaled(name, term, us) for term, us in rung.us.items()})
        for name, rung in costs.rungs.items()
    }
    shared_bytes = BLOCK_SHARED_KIB[chip.sm] << 10
    return msgspec.structs.replace(
        costs, multiprocessors=chip.multiprocessors, block_shared_bytes=shared_bytes, rungs=rungs
    )


def _guess(chip: Chip, costs: Costs, paths: Sequence[str], *, others: bool) -> str:
    """How another GPU's times were made, as a sentence; `others`: it has runs of other networks."""
    more = f" and {len(paths) - 1} more" * (len(paths) > 1)
    such = " such" * bool(_recorded_on(chip.name))
    how = f"A guess, as {f'on an {chip.name} other networks are' if others else f'no{such} {chip.name} is'} recorded"
    if paths:
        how = f"Times without ~ are recorded ({paths[0]}{more}); those with it are a guess"
    is_known = any(known_chip.name == chip.name for known_chip in CHIPS)
    rest = "" if is_known else " (it is not known, so all but what you named is an A100's)"
    return (
        f"{how}: scaled from an {costs.gpu} to {chip.memory_gb_s:,.0f} GB/s, {chip.clock_mhz:,} MHz and "
        f"{chip.multiprocessors} multiprocessors{rest}."
    )
