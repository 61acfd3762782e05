"""The words of a run's table: its order, headings and marks, the references, and how to read it.

Numbers stay numbers here (seconds, shares, ratios); `numbers` turns them into text.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from ladder.records.exactness import AS_EXACT
from ladder.records.run import ABLATIONS, BLOCKS, Check, ProblemRecord, Results, StageResult, Timing
from ladder.records.statistics import BOOTSTRAP_PROCESSES, VERDICT_CONFIDENCE
from reports.facts import numbers
from reports.facts.baselines import Lead, lead, ratio, references
from reports.facts.grouped import grouped
from reports.facts.ratios import NOISE, Times, ratio_of
from reports.facts.times import median_us, step_us

Kind = TypeVar("Kind", bound=Hashable)

FOUND = "Found by the author"  # the measurement that a stage's file tells

SOME_DISTURBED, ALL_DISTURBED = "†", "‡"  # behind a time
MARK = {
    SOME_DISTURBED: f"a disturbed process took over {numbers.share(NOISE)} longer or shorter than the others",
    ALL_DISTURBED: "all processes were disturbed",
}
UNMARKED = (
    f"Unmarked: no process was disturbed, or those that were agree with the others within {numbers.share(NOISE)}."
)
MARKS = f"{'; '.join(f'{mark}: {words}' for mark, words in MARK.items())}."

LACKING = "*"  # behind `passed`
STAGES = (
    "A stage is a rung, which changes one choice of its parent, or a reference: the same training in NumPy, PyTorch or "
    "JAX."
)
LAUNCHES = "Launches: kernels or graphs that the host launches per step."
FASTEST_REFERENCE = (
    f"the run's fastest reference {AS_EXACT} (float32 before tf32, tf32 before bf16 and fp16; no reference is in tf32)"
)
ON_GPU_TIME = (
    "GPU time: how long the GPU was busy, without the waits of that reference's own loop, where the lead is smaller so."
)
CYCLES = "Cycles/step: SM clock cycles, at the clock that NVML read after the timed runs."
FLOOR = (
    "x floor: the time as a multiple of the floor of this design, the least that its own launches, kernels, exchanges "
    "and waits take here."
)
BOUNDS = (
    f"{FLOOR} x cheat limit: the time as a multiple of the least that any honest program for this "
    "problem takes; a faster stage fails."
)
OF_ALL = (
    "A step is one of all networks, a network-step one network's share; in a row, that is one network's time alone."
)


def speedups(results: Results) -> str:
    """What a speedup and its interval say, and the narrowest one that so many processes allow."""
    processes = max((len(stage.processes) for stage in results.stages), default=0) or 1
    alike = Times(1.0, [1.0] * processes)
    least = numbers.share(ratio_of(alike, alike).interval[1] - 1)
    as_before = ", as earlier recordings scatter" * (processes < BOOTSTRAP_PROCESSES)
    return (
        f"Brackets behind a speedup hold its {VERDICT_CONFIDENCE:.1%} interval: with "
        f"{processes} process{'es' * (processes > 1)} on each side, at least {least} up and down{as_before} "
        "(docs/statistics.md). A speedup is within noise if its interval includes 1; nothing allows for picking the "
        "fastest of many."
    )


def tree(results: Results) -> str:
    """A sentence on the rungs that the table has between the fastest one and its parent; empty without any."""
    rungs = timed_rungs(results, with_ablations=False)
    best = min(rungs, key=lambda stage: median_us(stage) or math.inf, default=None)
    names = [stage.name for stage in rungs]
    if best is None or best.below not in names:
        return ""
    others = names.index(best.name) - names.index(best.below) - 1
    between = f"the {others} rungs between them are" if others > 1 else "the rung between them is"
    branches = f"{between} on other branches, not on its way"
    return f"Rungs form a tree: `{best.name}` climbs from `{best.below}`, and {branches}." if others > 0 else ""


def how_references_run(results: Results) -> str:
    """A sentence on what the references' rows rest on: the variant in brackets, and how often they have metrics."""
    timed = [stage for stage in references(results) if step_us(stage) is not None]
    every = results.problem.metrics_every
    seldom = f"once in {every} epochs" if every > 1 else "in every epoch"
    has_usual = every > 1 and any(stage.name == "torch-dataloader" for stage in timed)
    usual = "; `torch-dataloader` does so in every epoch" * has_usual
    variant = " Brackets behind a reference name what a search or a rule chose for it (docs/method.md)." * any(
        stage.detail for stage in timed
    )
    return f"References compute loss and accuracy {seldom}{usual}.{variant}" if timed else ""


def table_order(results: Results) -> list[StageResult]:
    """The stages as every rendering lists them: the rungs in ladder order, the references, then the ablations."""
    order = ["", *BLOCKS.values()]
    return sorted(results.stages, key=lambda stage: order.index(BLOCKS.get(stage.group, "")))


def name_of(stage: StageResult) -> str:
    """A stage's name, with `(CPU)` if it ran there and the name does not say so."""
    return f"{stage.name} (CPU)" if stage.device == "cpu" and "cpu" not in stage.name else stage.name


def title_of(stage: StageResult) -> str:
    """A stage's title, with the device and the detail that it does not name: `NumPy (CPU, 2 BLAS threads)`."""
    where = [stage.detail] if stage.detail else []
    if stage.device is not None and (stage.device == "cpu" or stage.group == "reference"):
        device = stage.device.upper()
        if device not in f"{stage.title} {stage.detail}":
            where.insert(0, device)
    return f"{stage.title} ({', '.join(where)})" if where else stage.title


def reason(stage: StageResult) -> str:
    """The reason why a stage did not pass, in one line."""
    return " ".join((stage.reason or "no reason was recorded").split())


def lacked_by_all(results: Results) -> set[tuple[str, str]]:
    """The checks, each with its reason, that were made of no stage that passed; empty where only one did.

    They say something of the run, so no row is marked for them.
    """
    return _of_all(results, lambda check: (check.what, check.note) if check.is_not_made else None)


def undecided_for_all(results: Results) -> set[str]:
    """The checks that rounding decides, or a part of them, for every stage that passed; likewise."""
    return _of_all(results, lambda check: check.what if check.is_undecided else None)


def _of_all(results: Results, kind: Callable[[Check], Kind | None]) -> set[Kind]:
    """The kinds of checks that every stage has that passed; empty where only one did."""
    passed = [stage for stage in results.stages if stage.status == "passed"]
    found = [{one for check in stage.checks if (one := kind(check)) is not None} for stage in passed]
    return set.intersection(*found) if len(found) > 1 else set()


def not_made(stage: StageResult, results: Results) -> list[Check]:
    """The checks that were not made of a stage that passed, but were of another."""
    own = [check for check in stage.checks if check.is_not_made and stage.status == "passed"]
    shared = lacked_by_all(results) if own else set()
    return [check for check in own if (check.what, check.note) not in shared]


def is_undecided(stage: StageResult, results: Results) -> bool:
    """Whether rounding decides a check that a stage passed, but not that of every other."""
    open_ones = {check.what for check in stage.checks if check.is_undecided and stage.status == "passed"}
    return bool(open_ones and open_ones - undecided_for_all(results))


def passed_in_words(stage: StageResult, results: Results) -> str:
    """What a stage that passed has passed: `passed`, or `passed, 4 checks not made`."""
    lacking = len(not_made(stage, results))
    return f"passed, {numbers.count(lacking, 'check')} not made" if lacking else "passed"


def lacks_a_check(stage: StageResult, results: Results) -> bool:
    """Whether a stage that passed did so without a check of its own: one not run, or one that rounding decides."""
    could_not_fail = any(not (check.judged or check.is_not_made or check.is_undecided) for check in stage.checks)
    lacks = could_not_fail or is_undecided(stage, results) or bool(not_made(stage, results))
    return stage.status == "passed" and lacks


def measured_runs(timing: Timing) -> str:
    """The runs behind a time: `6 runs of 20 epochs`."""
    return f"{numbers.count(len(timing.runs_s), 'run')} of {numbers.count(timing.epochs, 'epoch')}"


def heading(results: Results, *, explained: bool = False) -> str:
    """The problem in one line: `784-256-10 on MNIST, batch 128, learning rate 0.1, 20 epochs, seed 0`.

    Explained, it says what the network is: `784-10 (softmax regression) on MNIST, ...`.
    """
    problem = results.problem
    layers = numbers.count(len(problem.hidden), "hidden layer").replace("1 ", "one ")
    kind = f"{layers} of {', '.join(map(str, problem.hidden))}" if problem.hidden else "softmax regression"
    steps = "" if problem.max_steps is None else f" of at most {numbers.count(problem.max_steps, 'step')}"
    validation = f", {validated(results)}{' in the times' * explained}" if problem.validate_every else ""
    return (
        f"{problem.network}{f' ({kind})' * explained} on {dataset_name(problem)}, batch {problem.batch_size}, "
        f"{trained(problem)}, {numbers.count(problem.epochs, 'epoch')}"
        f"{steps}, seed {problem.seed}{validation}"
    )


def named(problem: ProblemRecord) -> str:
    """The network, or how many of it: `784-10`, `7 of 784-10`."""
    return f"{problem.networks} of {problem.network}" if problem.networks > 1 else problem.network


def trained(problem: ProblemRecord) -> str:
    """What trains: `learning rate 0.1`, or `3 networks, learning rates 0.03, 0.1, 0.3`."""
    rates = ", ".join(f"{rate:g}" for rate in problem.learning_rates or [problem.learning_rate])
    several = f"{problem.networks} networks, " if problem.networks > 1 else ""
    return f"{several}learning rate{'s' if problem.learning_rates else ''} {rates}"


def validated(results: Results) -> str:
    """How often the timed runs validate on the test images: `validation after every epoch`."""
    every = results.problem.validate_every
    return f"validation after every {'epoch' if every == 1 else f'{every} epochs'}"


def dataset_name(problem: ProblemRecord) -> str:
    """The data's name, marked if it is not MNIST."""
    return problem.dataset if problem.is_mnist else f"{problem.dataset} (not MNIST)"


def caption(results: Results) -> str:
    """How to read the table of a run."""
    inside = f"The times include {validated(results)}. " if results.problem.validate_every else ""
    return (
        "ms/epoch: the median of all runs, with the fastest and the slowest; preparation is not included. "
        f"{inside}{LAUNCHES} {speedups(results)} Over naive: the same against naive, in naive's precision only. "
        f"{yardsticks(results)}"
    )


def yardsticks(results: Results) -> str:
    """The sentence that names the fastest reference of each class of precision, or says why there is none."""
    used: dict[str, list[Lead]] = {}  # by reference, in the order of the table
    for stage in table_order(results):
        if stage.group != "reference" and (best_lead := lead(stage, results)) is not None:
            used.setdefault(best_lead.reference.name, []).append(best_lead)
    if not used:
        return _no_yardstick(results)
    named = []
    for name, leads in used.items():
        on_gpu = {best_lead.on_gpu_time for best_lead in leads}
        clock = "" if True not in on_gpu else " on GPU time" if False not in on_gpu else " (some on GPU time)"
        detail = f" ({numbers.line(leads[0].reference.detail)})" if leads[0].reference.detail else ""
        named.append(f"{name}{detail}{clock} for {numbers.listing(dict.fromkeys(map(_rows_of, leads)))}")
    waits = f" {ON_GPU_TIME}" if "on GPU time" in " ".join(named) else ""
    broken = _lost_yardsticks(references(results))
    return f"Speedup over the fastest reference compares with {FASTEST_REFERENCE}: {'; '.join(named)}.{waits}{broken}"


def _no_yardstick(results: Results) -> str:
    """Why no rung of a run is compared with a reference."""
    if not any(step_us(stage) is not None for stage in references(results)):
        return "No reference was timed in this run."
    if not timed_rungs(results):
        return "No rung was timed, so none is compared."
    return "No rung is compared with a reference: none with a time is as exact, and on the same kind of device."


def _rows_of(yardstick: Lead) -> str:
    return f"{yardstick.precision} rows{' on the CPU' if yardstick.stage.device == 'cpu' else ''}"


def _lost_yardsticks(stages: list[StageResult]) -> str:
    """A sentence on references that broke; empty if none did."""
    lost = [
        f"{numbers.listing(names)} {status}"
        for status in ("failed", "crashed")
        if (names := [stage.name for stage in stages if stage.status == status])
    ]
    return f" {numbers.listing(lost)}, and might have been faster." if lost else ""


def fewer_epochs(stage: StageResult, problem: ProblemRecord) -> int | None:
    """The epochs that a stage trained, if fewer than the problem's; None without a time, too."""
    return stage.timing.epochs if stage.timing and stage.timing.epochs < problem.epochs else None


def networks_in_words(results: Results) -> str:
    """How times of several networks are told, and the accuracy at each learning rate; empty where one trains."""
    return " ".join(filter(None, (OF_ALL, _by_rate(results)))) if results.problem.networks > 1 else ""


def _by_rate(results: Results) -> str:
    """The test accuracy at each learning rate, by the fastest stage that trained all epochs; empty without rates."""
    rates = results.problem.learning_rates
    timed = [stage for stage in results.stages if median_us(stage) is not None and stage.metrics is not None]
    timed = [stage for stage in timed if fewer_epochs(stage, results.problem) is None]
    if not rates or not timed:
        return ""
    fastest = min(timed, key=lambda stage: median_us(stage) or 0.0)
    seen = fastest.metrics.networks if fastest.metrics is not None else []
    told = [f"{rate:g} {numbers.percent(epoch)}" for rate, epoch in zip(rates, seen, strict=False)]
    return (
        f"Test accuracy by learning rate ({fastest.name}): {', '.join(told)}. Each rate has first parameters of its "
        f"own: close ones differ by chance."
    )


def disturbed_in_words(stage: StageResult) -> str:
    """Whether other work moved a stage's time: `disturbed`, `1 of 2 disturbed`; empty if most processes had none."""
    disturbed = sum(bool(process.disturbed) for process in stage.processes)
    if disturbed * 2 < len(stage.processes) or not disturbed:  # fewer do not move the median
        return ""
    share = "" if disturbed == len(stage.processes) else f"{disturbed} of {len(stage.processes)} "
    return f"{share}disturbed"


def disturbed_mark(stage: StageResult) -> str:
    """The mark of a time whose processes were all disturbed, or some and beyond the noise; otherwise empty.

    A process that took as long as undisturbed ones was disturbed in vain: most of a GPU's work does not feel the host.
    """
    moved, still = list[float](), list[float]()
    for process in stage.processes:
        if process.runs_s:
            (moved if process.disturbed else still).append(statistics.median(process.runs_s))
    if not still:
        return ALL_DISTURBED if moved else ""
    low, high = min(still) * (1 - NOISE), max(still) * (1 + NOISE)
    return SOME_DISTURBED if any(not low <= median <= high for median in moved) else ""


def skipped_in_words(reasons: Mapping[str, str], of: int | None = None) -> str:
    """One sentence on skipped stages, by name: `28 stages were skipped: no CUDA device.`, the commonest reason first.

    `of` is the number of all stages of the run, where it is known: `28 of this run's 39 stages were skipped`.
    """
    every = f" of this run's {of}" if of else ""
    named = grouped((why, name) for name, why in reasons.items())
    (why, names), *others = sorted(named.items(), key=lambda pair: -len(pair[1]))
    why = why.removesuffix(".")
    if not others:
        return f"{f'{len(names)}{every} stages were' if len(names) > 1 else f'{names[0]} was'} skipped: {why}."
    most = f"{len(names)} of them for one reason" if len(names) > 1 else f"{names[0]} for this reason"
    return f"{len(reasons)}{every} stages were skipped; {most}: {why}."


MOST_RUNGS = 12  # of a picture: what fits on a screen


def timed_rungs(results: Results, *, with_ablations: bool = True) -> list[StageResult]:
    """Every rung with a time, in table order."""
    left_out = ("reference", *(() if with_ablations else ABLATIONS))
    return [stage for stage in table_order(results) if stage.group not in left_out and step_us(stage) is not None]


def headline_rungs(results: Results, most: int) -> list[StageResult]:
    """At most `most` timed rungs of the ladder, in table order; ablations and references are left out.

    The fastest rung is chosen first, then those that change the time most. A rung comes with every timed rung below it,
    so that each row's parent is in the table.
    """
    timed = {stage.name: stage for stage in timed_rungs(results, with_ablations=False)}
    chosen: set[str] = set()
    fastest = min(timed, key=lambda name: median_us(timed[name]) or math.inf, default="")
    for name in sorted(timed, key=lambda name: (name != fastest, -_effect(timed, name))):
        wanted = chosen | _way_up(timed, name)
        if len(wanted) <= most:
            chosen = wanted
    return [stage for name, stage in timed.items() if name in chosen]


def _effect(timed: dict[str, StageResult], name: str) -> float:
    """How far a rung moves the time of its parent, as a logarithm; infinite for a rung without a timed parent."""
    factor = ratio(timed.get(timed[name].below or ""), timed[name])
    return math.inf if factor is None else abs(math.log(factor.times))


def _way_up(timed: dict[str, StageResult], name: str | None) -> set[str]:
    """A rung and the timed rungs that it climbs from."""
    way: set[str] = set()
    while name in timed and name not in way:
        way.add(name)
        name = timed[name].below
    return way
