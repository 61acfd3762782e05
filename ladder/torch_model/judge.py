"""Compares the training of a rung with the reference: eager float64, from the same parameters on the same batches.

How far a rung may be from it is what eager float32 shows itself. Repeated runs, and runs whose parameters begin moved
by rounding, are at some distances from the reference. Some begin moved at random. In others all begin larger, or all
smaller: float32 loses a decay of less than half a unit in every step, always in the same direction, and how much is
lost depends on whether the decay multiplies or is subtracted. A rung as exact as eager stays within
`AS_EXACT` times the largest of them, at several steps of the training and again late in it: early, since a chaotic
network hides a mistake after a hundred steps; late, since a schedule and the optimizer's step count only show there. If
the schedule's last change is in neither, some steps across it are compared too.

Each tensor is compared on its own: the norm of its error, relative to how far the reference moved it. A tensor's own
spread limits it, or the median of all tensors' if that is wider: eager's few runs may agree by chance in one of them.
A bias before BatchNorm has a gradient of rounding alone, which another compiler's sums make some times as large, and
its square more: its limits are `LESS_EXACT` times as wide.

Where two numbers of a pooling window are equal up to rounding, or a ReLU is at its corner, rounding decides where the
gradient goes, and from there on a run may be hundreds of times as far off as those in which it decided otherwise. So a
rung that fails after some steps, but passes the first comparison of each phase, is compared once more, from parameters
moved by a thousandth, with a reference from there: a mistake fails again, and chance hardly does.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from common.errors import MisfitError
from ladder.records.torch_run import TorchCheck
from ladder.torch_model.contract import Opened, RefusedError, generators
from stages.torch import r3_resident, r3_workers
from stages.torch.registry import RUNGS
from stages.torch.trainer import SEED, Checkpoint, Nudge, Recorder, Trainer, first_line
from stages.torch.training_step import Arithmetic, TrainingStep
from stages.torch.user_model import GRAIN, Schedule

AS_EXACT = 4.0  # times eager's largest distance
LESS_EXACT = 1000.0  # ... beyond which no rounding explains an error
LESS_EXACT_ROUNDED = 16.0  # ... of eager TF32 or bfloat16, whose own rounding hides what float32 rounds elsewhere
FIRST = (4, 8, 32, 128)  # steps after which runs from the start are compared
FIRST_OF_LARGE = (4, 128)
LATE = (1, 4, 32)  # ... and runs from a checkpoint late in the training
CHANGE = (4,)  # ... and from one two steps before the schedule's last change
LARGE = 5_000_000  # parameters; the reference keeps three copies of each at every comparison
UNIT = 2.0**-23  # of float32, relative
NUDGES_ROUNDED = (Nudge(), Nudge(1), Nudge(2))  # of eager runs in TF32 or bfloat16
NUDGES = (Nudge(), *NUDGES_ROUNDED, Nudge(3), Nudge(factor=1 + UNIT), Nudge(factor=1 - UNIT))  # of float32 runs
ROUNDING = 2.0**-24  # of float32, relative
AGAIN = Nudge(4, size=2.0**-10)  # of a second comparison: far beyond rounding, so that it decides elsewhere
ADRIFT = 100.0  # times as far as the reference moves a parameter, or its state, that eager's rounding alone moves
ALONE = nullcontext()  # a turn that never has to be waited for
FLOAT64_RUN = 2  # of those that make the reference; the first one is eager's
SEEDS = (11, 12, 13, 14, 15)  # of eager runs with their own random numbers
MEANS_LIMIT = 13.0  # standard deviations: Student's t with four degrees of freedom exceeds it once in 5,000 times
SAME_SEED = 21
PROBES = 256  # steps on one batch
SAME = 1e-6  # relative difference of two losses by the same numbers
DECIDED = "it is judged from parameters moved by a thousandth: from the model's own, a rounding decides where it goes"
REPEATS = 2.0  # times fewer different losses than eager's: steps or replays draw the same
MASKS_LIMIT = (6.0, 6.0)  # standard errors; chance exceeds it twice in a billion times
DECAYS = ("momentum", "alpha", "rho", "beta2_decay")  # names of rates in an optimizer's groups, beside `betas`
PHASES = {"first": "", "late": " late in training", "change": " across the schedule's last change"}
KINDS = {"parameters": "parameters", "buffers": "buffers", "state": "optimizer state", "loss": "losses"}
ARITHMETICS: dict[str, Arithmetic] = {rung.step.arithmetic.name: rung.step.arithmetic for rung in RUNGS.values()}

Series = dict[str, list[tuple[int, float]]]
"""Of the loss and each metric: steps done, and the sum over them."""
Distances = dict[str, dict[str, float]]
"""By kind and by name, such as `parameters` and `0.weight`; infinite for a tensor that is not finite or not there."""


@dataclass(frozen=True)
class Snapshot:
    """What a training has after some steps, on the host in float64; counts are whole numbers."""

    tensors: dict[str, dict[str, Any]]
    counts: dict[str, float]
    sums: Series


Phases = dict[str, dict[int, Snapshot]]
"""By phase, one of `PHASES`, and steps in it."""
Starts = dict[str, Checkpoint]
"""Of each phase but the first."""


@dataclass
class Reference:
    """What rungs are compared with; a process leaves it for the others."""

    kind: str  # `float64`, or why repeated eager runs took its place
    starts: Starts
    truth: Phases  # by phase and steps
    spread: dict[str, dict[str, dict[int, Distances]]]  # by arithmetic, phase and steps: the largest distances
    bits: dict[str, Any]  # the parameters of the first eager run after the last step of the first phase
    is_repeatable: bool = True
    runs: int = 1  # of eager float32 that are in it
    far: list[float] = field(default_factory=list)  # distances of their parameters, all together, after that step
    rounded: float = 0.0  # the largest distance of eager's losses with cuDNN's TF32
    dropped: list[float] = field(default_factory=list)  # mean losses of eager runs, each with random numbers of its own
    alike: dict[str, list[float]] = field(default_factory=dict)  # by arithmetic: eager's losses of one batch

    @property
    def typical(self) -> float:
        """The usual distance of eager float32's parameters."""
        return max(statistics.median(self.far), ROUNDING * 1e-3)

    @property
    def adrift(self) -> set[str]:
        """Parameters whose gradient is rounding alone, such as a bias before BatchNorm: each compiler has another."""
        first = self.spread["float32"]["first"]
        far = first[min(first)]
        names = [name for kind in ("parameters", "state") for name in far[kind] if far[kind][name] > ADRIFT]
        return {name.rpartition(" of ")[2] for name in names}

    @property
    def late(self) -> Checkpoint:
        """A checkpoint late in the training."""
        return self.starts["late"]


class EachLoss:
    """Keeps the loss of each of the last steps on the device; a `Metrics`."""

    def __init__(self, trainer: Trainer) -> None:
        import torch

        self._losses = torch.zeros(PROBES, dtype=torch.float64, device=trainer.device)
        self._next = torch.zeros(1, dtype=torch.int64, device=trainer.device)

    def take(self, values: dict[str, Any]) -> None:
        """Keep a step's loss."""
        self._losses.index_copy_(0, self._next, values["loss"].double().view(1))
        self._next.add_(1).remainder_(PROBES)

    def after_replay(self) -> None:
        """Nothing: the host does not wait."""

    def total(self, name: str) -> float:  # noqa: ARG002  # metrics have no part in it
        """The sum of the kept losses; the host waits."""
        return float(self._losses.sum())

    @property
    def losses(self) -> list[float]:
        """The last losses, in no order; the host waits."""
        return [float(loss) for loss in self._losses.cpu()]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on the host by one thread.

    Where other processes have the cores, several wait for each other in each operation: comparing the runs of a model
    of 430,000 parameters took 17 s on 16 cores, of which each was busy, and takes a second.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Judge:
    """Judges the rungs of one process."""

    def __init__(
        self,
        opened: Opened,
        reference: Reference | None = None,
        recorder: Recorder | None = None,
        turn: AbstractContextManager[Any] = ALONE,
        told: Callable[[int, int, Reference | None], object] = lambda run, runs, begun: None,  # noqa: ARG005
    ) -> None:
        """The judge makes the `reference`, or completes it. It trains many steps only when it has its `turn`.

        `told` gets the number of each training that makes the reference when it begins, how many there are, and the
        reference so far.
        """
        self._opened, self._recorder, self._turn, self._told = opened, recorder, turn, told
        count = sum(parameter.numel() for parameter in opened.initial.parameters())
        self._first = FIRST if count <= LARGE else FIRST_OF_LARGE
        self._ends = {"first": self._first, "late": LATE, "change": CHANGE}
        self._sizes: dict[tuple[str, int], Distances] = {}
        self._made = reference
        if reference is None or reference.runs < len(NUDGES):
            self._make_reference()

    @property
    def reference(self) -> Reference:
        """What it compares with."""
        assert self._made is not None
        return self._made

    def trainer(self, step: TrainingStep, *, double: bool = False, exact: bool = True) -> Trainer:
        """A trainer at its first step."""
        return new_trainer(self._opened, step, double=double, exact=exact, recorder=self._recorder)

    def judged(self, trainer: Trainer) -> tuple[list[TorchCheck], float, bool]:
        """The checks of a trainer, its error ratio, and whether its parameters are eager's.

        None of its steps have run, or the first `FIRST[0]`, with the random numbers of a new trainer.
        """
        found = self._judged(trainer)
        if self._may_be_chance(found[0]):
            with self._turn, suppress(RefusedError):  # its loss leaves the numbers from there
                other = self._again.trainer(trainer.choices)
                again = self._again._judged(other)
                other.close()
                if all(check.passed for check in again[0]):
                    trainer.notes.append(DECIDED)
                    return again
        return found

    def _may_be_chance(self, checks: list[TorchCheck]) -> bool:
        """Whether a trainer fails, but is right at first in each phase."""
        at_first = tuple(f"after {ends[0]} steps{PHASES[phase]}" for phase, ends in self._ends.items())
        failed = [check for check in checks if not check.passed]
        return bool(failed) and not any(check.error is None or check.what.endswith(at_first) for check in failed)

    @cached_property
    def _again(self) -> Judge:
        """A judge of the same training from other parameters."""
        initial = copy.deepcopy(self._opened.initial)
        AGAIN.move(initial.parameters())
        opened = replace(self._opened, initial=initial)
        return Judge(opened, None, self._recorder, self._turn, lambda run, runs, _: self._told(run, runs, None))

    def _judged(self, trainer: Trainer) -> tuple[list[TorchCheck], float, bool]:
        reference, name = self.reference, trainer.choices.arithmetic.name
        with self._turn:
            if name not in reference.spread:
                self._add_spread(trainer.choices.arithmetic)
            phases = self._trained(trainer, reference.starts)
        return self._compared(phases, name)

    @_one_thread()
    def _compared(self, phases: Phases, name: str) -> tuple[list[TorchCheck], float, bool]:
        reference = self.reference
        checks: list[TorchCheck] = []
        for phase, snapshots in phases.items():
            for steps, snapshot in snapshots.items():
                truth = reference.truth[phase][steps]
                checks += _checks(
                    f"after {steps} steps{PHASES[phase]}",
                    distances(snapshot, truth, self._moved(phase, steps)),
                    reference.spread[name][phase][steps],
                    LESS_EXACT if name == "float32" else LESS_EXACT_ROUNDED,
                    reference.adrift,
                    snapshot.counts == truth.counts,
                )
        last = phases["first"][self._first[-1]]
        ratio = _whole(last, reference.truth["first"][self._first[-1]], self._start("first")) / reference.typical
        return checks, ratio, _same_bits(last, reference.bits)

    def masks(self, trainer: Trainer) -> Iterator[TorchCheck]:
        """Checks of a timed trainer that draws random numbers, and of a probe by the same choices.

        The probe's losses differ by their masks or noise alone. So what a graph holds, or its steps share, shows as a
        loss that comes again. Eager losses of the same kind are the measure.
        """
        reference = self.reference
        twin = trainer if trainer.choices.compiler.arguments is not None else None
        probe = new_probe(self._opened, trainer.choices, self._recorder, twin)
        with self._turn:
            usual = self._usual(trainer.choices.arithmetic)
            means = [_mean_loss(trainer, reference.late, seed) for seed in SEEDS[:3]]
            alike = self._alike(probe)
        differ = _different(means) >= min(len(means), _different(reference.dropped[: len(means)]))
        yield _exactly("random numbers differ between seeds", differ)
        repeats = _different(usual) / _different(alike)
        yield TorchCheck("random numbers differ between steps", repeats, REPEATS, REPEATS)
        error = max(_standard_errors(alike, usual), _standard_errors(_deviations(alike), _deviations(usual)))
        yield TorchCheck("losses of one batch, in standard errors", _finite(error), *MASKS_LIMIT)
        spread = statistics.stdev(reference.dropped) * math.sqrt(1 / len(means) + 1 / len(reference.dropped))
        error = abs(statistics.mean(means) - statistics.mean(reference.dropped)) / _at_least(spread, means)
        yield TorchCheck(
            "mean loss with random numbers, in standard deviations", _finite(error), MEANS_LIMIT, MEANS_LIMIT
        )

    def add_random(self) -> None:
        """Add eager runs with random numbers to the reference, in each precision that it has."""
        for name in self.reference.spread:
            self._usual(ARITHMETICS[name])

    def _usual(self, arithmetic: Arithmetic) -> list[float]:
        """Eager's losses of one batch; the reference also gets mean losses by several seeds."""
        reference = self.reference
        if not reference.dropped:
            trainer = self.trainer(self._eager(ARITHMETICS["float32"]), exact=False)
            trainer.run(1)
            reference.dropped = [_mean_loss(trainer, reference.late, seed) for seed in SEEDS]
        if arithmetic.name not in reference.alike:
            probe = new_probe(self._opened, self._eager(arithmetic), self._recorder)
            reference.alike[arithmetic.name] = self._alike(probe)
        return reference.alike[arithmetic.name]

    def _alike(self, probe: Trainer) -> list[float]:
        """The losses of a probe's steps, from the late checkpoint."""
        probe.load(self.reference.late, seed=SAME_SEED)
        probe.run(PROBES)
        probe.close()
        assert isinstance(probe.metrics, EachLoss)
        return probe.metrics.losses

    def as_timed(self, trainer: Trainer) -> TorchCheck:
        """Whether a timed trainer whose convolutions round to TF32 is as far from the reference as eager then is."""
        reference = self.reference
        truth = reference.truth["late"][LATE[-1]].sums["loss"]
        with self._turn:
            if not reference.rounded:
                eager = self.trainer(self._eager(ARITHMETICS["float32"]), exact=False)
                eager.run(1)
                for nudge in NUDGES_ROUNDED:
                    eager.load(reference.late)
                    nudge.move(eager.model.parameters())
                    reference.rounded = max(reference.rounded, _series_distance(_losses(eager, LATE[-1]), truth))
            trainer.load(reference.late)
            error = _series_distance(_losses(trainer, LATE[-1]), truth) / max(reference.rounded, ROUNDING)
        what = "losses as timed, where cuDNN rounds to TF32 by default"
        return TorchCheck(what, _finite(error), AS_EXACT, LESS_EXACT, "loss")

    # The reference

    def _make_reference(self) -> None:
        """Train eager, in float64, and eager again; each run is compared at once, so that none has to be kept."""
        runs, last = len(NUDGES) + 1, self._first[-1]
        if self._made is None:
            self._told(1, runs, None)
            first, starts = self._eager_run(NUDGES[0])
            draws = _drew()
            self._check_finite(first)
            self._told(FLOAT64_RUN, runs, None)
            truth, kind = self._truth(starts, first, draws=draws)
            self._made = Reference(kind, starts, truth, {}, first["first"][last].tensors["parameters"])
            self._made.spread["float32"] = self._least()
            if kind == "float64":
                self._add(first)
        for nudge in NUDGES[self.reference.runs :]:
            self._told(self.reference.runs + FLOAT64_RUN, runs, self.reference)
            again, _ = self._eager_run(nudge, self.reference.starts)
            if self.reference.runs == 1:  # it begins as the first one did
                self.reference.is_repeatable = _same_bits(again["first"][last], self.reference.bits)
            self._add(again)
            self.reference.runs += 1

    def _eager_run(self, nudge: Nudge, starts: Starts | None = None) -> tuple[Phases, Starts]:
        """An eager run whose parameters begin a rounding away, and the starts of its later phases."""
        trainer = self.trainer(self._eager(ARITHMETICS["float32"]))
        nudge.move(trainer.model.parameters())
        phases = {"first": self._phase(trainer, "first")}
        starts = starts or self._starts(trainer.checkpoint())
        for phase, start in starts.items():
            trainer.load(start)
            nudge.move(trainer.model.parameters())
            phases[phase] = self._phase(trainer, phase)
        return phases, starts

    @_one_thread()
    def _add(self, run: Phases) -> None:
        """Compare a run of eager's with the reference, whose limits it may widen."""
        reference, last = self.reference, self._first[-1]
        self._widen(reference.spread["float32"], run)
        reference.far.append(_whole(run["first"][last], reference.truth["first"][last], self._start("first")))

    def _check_finite(self, run: Phases) -> None:
        """Raise RefusedError for a training that ends in numbers that are none: nothing could be compared with it."""
        for phase, snapshots in run.items():
            for steps, snapshot in snapshots.items():
                if not all(math.isfinite(total) for series in snapshot.sums.values() for _, total in series):
                    when = f"{steps} steps{PHASES[phase]}"
                    name = self._opened.user.path.name
                    raise RefusedError(f"{name}: the loss is not finite within {when}; check learning rate and inputs")

    def _truth(self, starts: Starts, eager: Phases, *, draws: bool) -> tuple[Phases, str]:
        """The float64 training, or an eager one where an operation has no float64 or draws other numbers in it.

        `draws` tells whether the steps draw any with dropout off: only then each operation has to be looked at.
        """
        opened = replace(self._opened, user=replace(self._opened.user, draws=draws))
        try:
            step = self._eager(ARITHMETICS["float32"])
            truth = self._trained(new_trainer(opened, step, double=True, recorder=self._recorder), starts)
        except MisfitError:
            raise
        except Exception as error:
            return eager, f"repeated eager runs, since float64 fails: {first_line(error)}"
        first = self._first[0]
        ours, theirs = truth["first"][first].sums["loss"][0][1], eager["first"][first].sums["loss"][0][1]
        if not abs(ours - theirs) <= 1e-3 * max(abs(ours), 1e-3):
            return eager, "repeated eager runs, since the model draws other random numbers in float64"
        return truth, "float64"

    def _add_spread(self, arithmetic: Arithmetic) -> None:
        """Eager runs in another precision, and how far they are from the reference."""
        runs = []
        for nudge in NUDGES_ROUNDED:
            trainer = self.trainer(self._eager(arithmetic))
            nudge.move(trainer.model.parameters())
            runs.append(self._trained(trainer, self.reference.starts))
        self.reference.spread[arithmetic.name] = self._spread(runs)

    def _eager(self, arithmetic: Arithmetic) -> TrainingStep:
        """An eager step: with resident data where it fits, since its batches are the loader's."""
        rung = r3_workers.RUNG if self._opened.not_resident else r3_resident.RUNG
        return replace(rung.step, arithmetic=arithmetic)

    def _spread(self, runs: Sequence[Phases]) -> dict[str, dict[int, Distances]]:
        """The largest distances of these runs."""
        spread = self._least()
        for run in runs:
            self._widen(spread, run)
        return spread

    @_one_thread()
    def _least(self) -> dict[str, dict[int, Distances]]:
        """The least distances that float32 can be held to."""
        held = ROUNDING / 2 / (1 - self._decay())
        return {
            phase: {steps: _floors(snapshot, self._moved(phase, steps), held) for steps, snapshot in snapshots.items()}
            for phase, snapshots in self.reference.truth.items()
        }

    @_one_thread()
    def _widen(self, spread: dict[str, dict[int, Distances]], run: Phases) -> None:
        """Have the largest distances contain a run's."""
        for phase, snapshots in spread.items():
            for steps, known in snapshots.items():
                truth = self.reference.truth[phase][steps]
                for kind, names in distances(run[phase][steps], truth, self._moved(phase, steps)).items():
                    known[kind] = {name: max(known[kind][name], error) for name, error in names.items()}

    def _moved(self, phase: str, steps: int) -> Distances:
        """How far the reference moved each tensor in these steps of a phase."""
        at = phase, steps
        if at not in self._sizes:
            self._sizes[at] = sizes(self.reference.truth[phase][steps], self._start(phase))
        return self._sizes[at]

    def _decay(self) -> float:
        """The optimizer's rate of decay that is closest to 1."""
        optimizer = self._opened.user.optimizer(list(self._opened.initial.parameters()))
        groups = optimizer.param_groups
        rates = [
            rate for group in groups for rate in (*group.get("betas", ()), *(group.get(name, 0.0) for name in DECAYS))
        ]
        return max((float(rate) for rate in rates if 0 <= rate < 1), default=0.0)

    def _trained(self, trainer: Trainer, starts: Starts) -> Phases:
        """All phases of a trainer at its beginning."""
        phases = {"first": self._phase(trainer, "first")}
        for phase, start in starts.items():
            trainer.load(start)
            phases[phase] = self._phase(trainer, phase)
        return phases

    def _phase(self, trainer: Trainer, phase: str) -> dict[int, Snapshot]:
        """What a trainer has after these steps of a phase; it may have run some of the first phase's before."""
        import torch

        snapshots: dict[int, Snapshot] = {}
        sums, done = _begun(trainer) if phase == "first" else ({}, 0)
        for end in self._ends[phase]:
            if end > done:
                torch.manual_seed(SEED)  # others may have drawn since the trainer was built, and since it began
                sums = _series(trainer, end - done, sums)
            done = end
            snapshots[end] = _snapshot(trainer, sums)
        return snapshots

    def _starts(self, after: Checkpoint) -> Starts:
        """Checkpoints at the schedule's end and its last change, with the parameters and the state of an early one."""
        opened = self._opened
        whole = opened.user.epochs * (len(opened.data.dataset) // opened.user.batch_size)
        end = opened.schedule.steps if opened.schedule.columns or opened.schedule.ends else max(whole, 2 * FIRST[-1])
        late, change = max(end - LATE[-1], 0), opened.schedule.last_change
        starts = {"late": _moved_to(late, after)}
        if FIRST[-1] <= change < late:
            starts["change"] = _moved_to(change - CHANGE[-1] // 2, after)
        return starts

    def _start(self, phase: str) -> dict[str, Any]:
        """The values from which a phase begins, by name."""
        if phase == "first":
            return dict(self._opened.initial.state_dict())
        return {**self.reference.starts[phase].parameters, **self.reference.starts[phase].buffers}


def new_trainer(
    opened: Opened, step: TrainingStep, *, double: bool = False, exact: bool = True, recorder: Recorder | None = None
) -> Trainer:
    """A trainer of a model at its first step."""
    return Trainer(
        opened.user, opened.initial, opened.data, opened.schedule, step, double=double, exact=exact, recorder=recorder
    )


def needs_own_trainer(opened: Opened, step: TrainingStep) -> bool:
    """Whether a rung's timed trainer may compute something else than is compared.

    It has dropout, cuDNN rounds its factors to TF32, and compiled code draws random numbers of its own.
    """
    rounds = opened.has_convolution and opened.data.device.type == "cuda" and step.arithmetic.name == "float32"
    return opened.is_random or rounds


def new_probe(
    opened: Opened, step: TrainingStep, recorder: Recorder | None = None, twin: Trainer | None = None
) -> Trainer:
    """A trainer whose steps all have the same batch and learn nothing; it runs the compiled code of its `twin`."""
    data = copy.copy(opened.data)  # with the same resident tensors
    data.order = data.order[:1].repeat(PROBES, 1)
    vars(data).pop("order_on_device", None)
    user = replace(opened.user, scheduler=None, optimizer=lambda params: _still(opened.user.optimizer(params)))
    probe = Trainer(
        user, opened.initial, data, Schedule((), [[]]), replace(step, metrics=EachLoss), recorder=recorder, twin=twin
    )  # fmt: skip
    probe.run(GRAIN)
    return probe


def _series(trainer: Trainer, steps: int, before: Series) -> Series:
    """Train, and add the sums of losses and metrics after each launch to the series."""
    names = ["loss", *trainer.user.metric_names]
    base = {name: trainer.metrics.total(name) for name in names}
    last = {name: before[name][-1] if before else (0, 0.0) for name in names}
    series = {name: list(before.get(name, ())) for name in names}
    at_once = max(1, trainer.launch.steps)
    done = 0
    while done < steps:
        more = min(at_once, steps - done)
        trainer.run(more)
        done += more
        for name, (at, total) in last.items():
            series[name].append((at + done, total + trainer.metrics.total(name) - base[name]))
    return series


def _still(optimizer: Any) -> Any:
    """The optimizer with a learning rate that moves nothing; a captured Adam would divide by zero."""
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * 1e-20
    return optimizer


def _different(losses: Sequence[float]) -> int:
    """How many of these losses differ by more than rounding."""
    ordered = sorted(losses)
    return 1 + sum(after - before > SAME * abs(after) for before, after in pairwise(ordered))


def _standard_errors(some: Sequence[float], others: Sequence[float]) -> float:
    """How far two means are from each other, in standard errors of their difference."""
    spread = math.sqrt(statistics.variance(some) / len(some) + statistics.variance(others) / len(others))
    return abs(statistics.mean(some) - statistics.mean(others)) / _at_least(spread, others)


def _deviations(losses: Sequence[float]) -> list[float]:
    """How far each is from their median: their mean is a spread that a few far ones do not rule."""
    middle = statistics.median(losses)
    return [abs(loss - middle) for loss in losses]


def _at_least(spread: float, losses: Sequence[float]) -> float:
    """A spread, or the rounding of the losses if that is wider."""
    return max(spread, ROUNDING * max(map(abs, losses)), 1e-300)


def _moved_to(position: int, after: Checkpoint) -> Checkpoint:
    """A checkpoint as if it had been taken after so many steps."""
    state = {
        key: value.new_full(value.shape, position) if key[1] == "step" and hasattr(value, "new_full") else value
        for key, value in after.state.items()
    }
    return replace(after, state=state, position=position)


def _begun(trainer: Trainer) -> tuple[Series, int]:
    """The series of a trainer's steps before the judge came, and their number."""
    done = trainer.position
    if not done:
        return {}, 0
    return {name: [(done, trainer.metrics.total(name))] for name in ("loss", *trainer.user.metric_names)}, done


def _losses(trainer: Trainer, steps: int) -> list[tuple[int, float]]:
    return _series(trainer, steps, {})["loss"]


def _mean_loss(trainer: Trainer, start: Checkpoint, seed: int) -> float:
    trainer.load(start, seed=seed)
    return _losses(trainer, LATE[-1])[-1][1] / LATE[-1]


def _snapshot(trainer: Trainer, sums: Series) -> Snapshot:
    at = trainer.checkpoint()
    tensors: dict[str, dict[str, Any]] = {"parameters": {}, "buffers": {}, "state": {}}
    counts: dict[str, float] = {}
    values = [("parameters", name, value) for name, value in at.parameters.items()]
    values += [("buffers", name, value) for name, value in at.buffers.items()]
    names = [name for name, _ in trainer.model.named_parameters()]
    values += [("state", f"{name} of {names[index]}", value) for (index, name), value in at.state.items()]
    for kind, name, value in values:
        if not hasattr(value, "dtype") or not value.is_floating_point() or name.startswith("step of"):
            counts[f"{kind} {name}"] = _number(value)
        else:
            tensors[kind][name] = value.detach().double().cpu()
    return Snapshot(tensors, counts, sums)


def _number(value: Any) -> float:
    """A number of Python or of a tensor; of several, one that tells them apart."""
    import torch

    flat = torch.as_tensor(value).detach().cpu().to(torch.float64).flatten()
    return float((flat * torch.arange(1, len(flat) + 1, dtype=torch.float64)).sum())


def distances(own: Snapshot, truth: Snapshot, moved: Distances) -> Distances:
    """How far each tensor, and the losses, are from the reference, relative to how far that `moved` them."""
    far: Distances = {kind: {} for kind in truth.tensors}
    for kind, tensors in truth.tensors.items():
        for name, value in tensors.items():
            mine = own.tensors[kind].get(name)
            same = mine is not None and mine.shape == value.shape
            error = float((mine - value).norm()) if same else math.inf
            far[kind][name] = error / moved[kind][name] if math.isfinite(error) else math.inf
    far["loss"] = {name: _series_distance(own.sums.get(name, []), series) for name, series in truth.sums.items()}
    return far


def sizes(truth: Snapshot, start: dict[str, Any]) -> Distances:
    """How far the reference moved each tensor from its start."""
    return {
        kind: {name: _moved(value, start.get(name)) for name, value in tensors.items()}
        for kind, tensors in truth.tensors.items()
    }


def _moved(value: Any, start: Any) -> float:
    """How far the reference moved a tensor, or its size where it began at zero or hardly moves."""
    size = float(value.norm())
    moved = float((value - start.double().cpu()).norm()) if start is not None else size
    return max(moved, ROUNDING * 16 * size, 1e-30)


def _floors(truth: Snapshot, moved: Distances, held: float) -> Distances:
    """The least distances that float32 can be held to: half a unit of rounding in each number.

    `held` is the same of the optimizer's state by its rates of decay. Held in float32, as fused kernels do, 0.999 makes
    1 - 0.999 wrong by half a unit of rounding a thousand times.
    """
    floors: Distances = {
        kind: {name: ROUNDING / 2 * float(value.norm()) / moved[kind][name] for name, value in named.items()}
        for kind, named in truth.tensors.items()
    }
    floors["state"] = {
        name: max(floor, held * _cancellation(name, truth.tensors["state"])) for name, floor in floors["state"].items()
    }
    floors["loss"] = dict.fromkeys(truth.sums, ROUNDING)
    return floors


def _cancellation(name: str, state: dict[str, Any]) -> float:
    """How much larger the gradients are than their mean, in which an error of the rate of decay shows as much more."""
    kind, _, parameter = name.partition(" of ")
    squares = state.get(f"exp_avg_sq of {parameter}")
    if kind != "exp_avg" or squares is None or squares.shape != state[name].shape:
        return 1.0
    return max(1.0, math.sqrt(float(squares.abs().sum())) / max(float(state[name].norm()), 1e-30))


def _drew() -> bool:
    """Whether the steps since the last seed drew random numbers."""
    import torch

    now = generators()
    torch.manual_seed(SEED)
    return generators() != now


def _series_distance(own: Sequence[tuple[int, float]], truth: Sequence[tuple[int, float]]) -> float:
    """The root mean square of the differences of mean losses between two launches, relative to the reference's.

    The reference has a mean for each step. A launch of several steps has one for all, in which values of both signs
    may cancel; so that its errors are relative to the same number, this is the root mean square of the single steps'.
    """
    known = {0: 0.0, **dict(truth)}
    before_own, at, squares = 0.0, 0, 0.0
    for steps, total in own:
        if steps not in known or not math.isfinite(total):
            return math.inf
        squares += ((total - before_own) - (known[steps] - known[at])) ** 2 / (steps - at)
        before_own, at = total, steps
    if not at:
        return math.inf
    sizes = sum((later - earlier) ** 2 for earlier, later in pairwise(known[step] for step in sorted(known)))
    return math.sqrt(squares / sizes) if sizes else (math.inf if squares else 0.0)


def _checks(
    when: str, far: Distances, spread: Distances, less_exact: float, adrift: set[str], same_counts: bool
) -> Iterator[TorchCheck]:
    """A check a kind: the largest distance of a tensor in multiples of eager's, for what is `adrift` in thousands."""
    for kind, names in far.items():
        if not names:
            continue
        usual = statistics.median_low(spread[kind].values())
        errors = {name: value / max(spread[kind][name], usual, 1e-300) for name, value in names.items()}
        errors |= {name: error / LESS_EXACT for name, error in errors.items() if name.rpartition(" of ")[2] in adrift}
        where = max(errors, key=lambda name: errors[name])
        yield TorchCheck(f"{KINDS[kind]} {when}", _finite(errors[where]), AS_EXACT, less_exact, where)
    yield _exactly(f"step counts {when}", same_counts)


def _exactly(what: str, is_right: bool) -> TorchCheck:
    return TorchCheck(what, 0.0 if is_right else None, 0.0, 0.0)


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None


def _whole(own: Snapshot, truth: Snapshot, start: dict[str, Any]) -> float:
    """The distance of all parameters together."""
    squares = moved = 0.0
    for name, value in truth.tensors["parameters"].items():
        squares += float((own.tensors["parameters"][name] - value).norm()) ** 2
        moved += float((value - start[name].double().cpu()).norm()) ** 2
    return math.sqrt(squares / moved) if moved else 0.0


def _same_bits(own: Snapshot, bits: dict[str, Any]) -> bool:
    return all(bool((value == bits[name]).all()) for name, value in own.tensors["parameters"].items())
