"""What every rendering shows of a run: its rows, what they are compared with, and how to read them.

Numbers stay numbers here (seconds, shares, ratios); `format` turns them into words.
"""

from __future__ import annotations

from dataclasses import dataclass

from ladder.records.run import Group, Precision, Results, Spread, StageResult, Status, Timing
from reports.facts import numbers
from reports.facts.baselines import fastest_peer, precision_class, ratio, step_cycles, torch_stages

SLOWER = 1.02  # times the rung below: less than that is within what two recordings of one stage differ by

# The blocks of a table, with their headings, in order: first the ladder itself, which needs none. In those of side
# rungs each is compared with the one before it, as in the first.
BLOCKS: dict[Group, str] = {
    "reference": "References",
    "memory": "Side rungs: memory",
    "data": "Side rungs: data path",
    "shapes": "Side rungs: launch shapes",
}
SIDES: tuple[Group, ...] = ("memory", "data", "shapes")

HOW_TO_READ = (
    "Launches: what the host hands to the GPU a step, kernels or graphs. "
    "vs: how many times faster than that row (above 1x is faster, below 1x slower); "
    "vs naive only in naive's own precision."
)
CYCLES = "Cycles/step: of the SM clock, as NVML read it after the timed runs."
FLOORS = (
    "x own floor: its time as a multiple of what its own launches, kernels, exchanges and waits take at least on this "
    "GPU; x physical floor: of what the problem takes at least, however it is written."
)


@dataclass(frozen=True)
class Row:
    """One stage as a table shows it; the times and ratios of a stage that is not `passed` are None."""

    name: str
    label: str  # the title, and where it ran
    changed: str  # the one choice that differs from the rung below; empty for the first rung and the references
    precision: Precision
    is_reference: bool
    block: str  # the heading that it stands under; empty for the ladder itself
    status: Status
    verdict: str  # `passed`, or `failed: ` and the reason
    epoch_s: Spread | None
    step_us: float | None
    step_cycles: float | None  # of the SM clock that was read after the timed runs
    launches_per_step: float | None  # what the host hands to the GPU, kernels or graphs
    times_own_floor: float | None  # its time as a multiple of what its own launches, kernels and waits take at least
    times_physical_floor: float | None  # and of what the problem takes at least, whatever the stage
    versus_below: float | None  # above 1: faster than the rung below
    versus_naive: float | None  # only in the same class of precision
    versus_torch: float | None  # the fastest PyTorch that it may be compared with
    gpu_memory_mib: float | None
    prepare_s: float | None
    test_accuracy: float | None  # share of 0 to 1
    fewer_epochs: int | None  # those that it trained, where the problem has more
    shortened: str  # `2 runs of 3 epochs` where the budget was short, otherwise empty
    throttled: bool

    @property
    def times(self) -> str:
        """Milliseconds an epoch with what a reader must know about them: `17.2 (17.1-17.9), throttled`."""
        remarks = [self.shortened] if self.shortened else []
        if self.throttled:
            remarks.append("throttled")
        return ", ".join([numbers.spread_milliseconds(self.epoch_s), *remarks])

    @property
    def accuracy(self) -> str:
        """The test accuracy, with the epochs where they are not the problem's: `96.93% (10 epochs)`."""
        text = numbers.percent(self.test_accuracy)
        return text if self.fewer_epochs is None else f"{text} ({numbers.count(self.fewer_epochs, 'epoch')})"


def rows(results: Results) -> list[Row]:
    """A row for every stage, never in the order of their speed."""
    passed = {stage.name: stage for stage in results.stages if stage.status == "passed"}
    torch = torch_stages(results)
    return [
        _row(
            stage,
            results.problem.epochs,
            below=passed.get(stage.below or ""),
            naive=passed.get("naive"),
            torch=fastest_peer(stage, torch),
        )
        for stage in table_order(results)
    ]


def table_order(results: Results) -> list[StageResult]:
    """The stages as every rendering lists them: the rungs from the lowest up, the references, then the side rungs."""
    order = ["", *BLOCKS.values()]
    return sorted(results.stages, key=lambda stage: order.index(BLOCKS.get(stage.group, "")))


def label(stage: StageResult) -> str:
    """A stage's title, and in brackets where it ran: a reference may run on either, a rung tells only a CPU."""
    where = [stage.detail] if stage.detail else []
    if stage.device is not None and (stage.device == "cpu" or stage.group == "reference"):
        device = stage.device.upper()
        if device not in f"{stage.title} {stage.detail}":
            where.insert(0, device)
    return f"{stage.title} ({', '.join(where)})" if where else stage.title


def reason(stage: StageResult) -> str:
    """Why a stage did not pass, in one line."""
    return " ".join((stage.reason or "no reason was recorded").split())


def measured_runs(timing: Timing) -> str:
    """What a time was taken over: `6 runs of 20 epochs`."""
    return f"{numbers.count(len(timing.runs_s), 'run')} of {numbers.count(timing.epochs, 'epoch')}"


def heading(results: Results) -> str:
    """The problem in a line: `784-256-10 on MNIST, batch 128, learning rate 0.1, 20 epochs, seed 0`."""
    problem = results.problem
    steps = "" if problem.max_steps is None else f" of {numbers.count(problem.max_steps, 'step')} at most"
    return (
        f"{problem.network} on {dataset_name(results)}, batch {problem.batch_size}, "
        f"learning rate {problem.learning_rate:g}, {numbers.count(problem.epochs, 'epoch')}"
        f"{steps}, seed {problem.seed}{f', {validated(results)}' if problem.validate_every else ''}"
    )


def validated(results: Results) -> str:
    """When stages looked at the test images within their time: `validation after every epoch`."""
    every = results.problem.validate_every
    return f"validation after every {'epoch' if every == 1 else f'{every} epochs'}"


def dataset_name(results: Results) -> str:
    """The data's name, which never lets anything else pass for MNIST."""
    problem = results.problem
    return problem.dataset if problem.is_mnist else f"{problem.dataset} (not MNIST)"


def caption(results: Results) -> str:
    """How to read a table with every column."""
    inside = f"The {validated(results)} is inside the times. " if results.problem.validate_every else ""
    return (
        "ms/epoch is the median of all runs, with the fastest and the slowest; prepare comes before and is not in it. "
        f"{inside}{HOW_TO_READ} {yardsticks(results)}"
    )


def yardsticks(results: Results) -> str:
    """The sentence that says which PyTorch the rows of each class of precision are compared with."""
    torch = torch_stages(results)
    used: dict[str, None] = {}  # in the order of the table
    classes = set()
    for stage in table_order(results):
        if stage.status == "passed" and (peer := fastest_peer(stage, torch)):
            on_cpu = " on the CPU" if peer.device == "cpu" else ""
            used[f"{peer.name} in {precision_class(peer)}{on_cpu}"] = None
            classes.add(precision_class(peer))
    if not used:
        return "No PyTorch was timed in this run."
    return (
        f"PyTorch is the fastest that passed in the row's own precision: {', '.join(used)}; "
        f"a dash where there is none to compare with.{_lost_yardsticks(torch, classes)}"
    )


def _lost_yardsticks(torch: list[StageResult], classes: set[str]) -> str:
    """A sentence on the PyTorch that broke, in classes where another is compared with; empty where none did."""
    lost = [
        f"{numbers.listing(names)} {status}"
        for status in ("failed", "crashed")
        if (names := [one.name for one in torch if one.status == status and precision_class(one) in classes])
    ]
    return f" {numbers.listing(lost)}, so that PyTorch's best may be faster." if lost else ""


def setbacks(results: Results) -> list[str]:
    """A sentence for each rung that is slower than the one below by more than 2 %."""
    stages = {stage.name: stage for stage in results.stages}
    told = []
    for stage in results.stages:
        factor = ratio(stages.get(stage.below or ""), stage)
        if factor is not None and factor < 1 / SLOWER:
            where = "Found" if stage.doc is not None and stage.doc.found else "Expect and Measured"
            told.append(
                f"{stage.name} is slower than {stage.below} here ({numbers.ratio(factor)} its speed); "
                f"see {where} in its section."
            )
    return told


def _row(
    stage: StageResult,
    epochs: int,
    *,
    below: StageResult | None,
    naive: StageResult | None,
    torch: StageResult | None,
) -> Row:
    timing = stage.timing if stage.status == "passed" else None
    profile = stage.profile if timing else None
    floor = stage.floor if timing else None
    same_precision = naive is not None and precision_class(naive) == precision_class(stage)
    return Row(
        name=stage.name,
        label=label(stage),
        changed=stage.changed or "",
        precision=stage.precision,
        is_reference=stage.group == "reference",
        block=BLOCKS.get(stage.group, ""),
        status=stage.status,
        verdict=stage.status if stage.status == "passed" else f"{stage.status}: {reason(stage)}",
        epoch_s=timing.epoch_s if timing else None,
        step_us=timing.step_us if timing else None,
        step_cycles=step_cycles(stage),
        launches_per_step=profile.launches_per_step if profile else None,
        times_own_floor=_times(timing, floor.design_us if floor else None),
        times_physical_floor=_times(timing, floor.physical_us if floor else None),
        versus_below=ratio(below, stage),
        versus_naive=ratio(naive, stage) if same_precision else None,
        versus_torch=ratio(torch, stage),
        gpu_memory_mib=timing.gpu_memory_mib if timing else None,
        prepare_s=timing.prepare_s if timing else None,
        test_accuracy=stage.metrics.test_accuracy if stage.metrics else None,
        fewer_epochs=timing.epochs if timing and timing.epochs < epochs else None,
        shortened=measured_runs(timing) if timing and timing.shortened else "",
        throttled=timing is not None and timing.throttled,
    )


def _times(timing: Timing | None, floor_us: float | None) -> float | None:
    """A time as a multiple of a floor."""
    return timing.step_us / floor_us if timing is not None and floor_us else None
