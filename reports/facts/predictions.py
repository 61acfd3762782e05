"""What a stage's author predicted, beside what the run measured: hit, undecided or missed.

A stage's docstring tells its predictions in a paragraph `Predict`, written from the numbers of `Expect`:

    Predict: on H200: 784-10, batch 128: 15 to 20 us; 784-128x3-10, batch 32: 2 to 3 x of cudnn-softmax.

A prediction is a step's time in `us`, a difference in `us less than STAGE` or `us more than STAGE`, or a factor in `x
of STAGE`. `7 of 784-10` is for seven networks. Nothing is judged on another GPU, for another network or batch, or
without a time of `STAGE`. `on CPU: ` is for a rung on any CPU, and `on CPU with 2 cores: ` for as many usable cores.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.baselines import host_times
from reports.facts.provenance import gpu_name
from reports.facts.ratios import NOISE, ratio_of
from reports.facts.times import median_us

# A single number is hit within this share of it; a range has its own width.
NEAR_TIME = 0.10
NEAR_FACTOR = 0.05
NEAR_DIFFERENCE = 0.25  # of two times, so it carries the errors of both
HOW_TO_READ = (
    f"A prediction is hit within {NEAR_TIME:.0%} of a time, {NEAR_FACTOR:.0%} of a factor, {NEAR_DIFFERENCE:.0%} of a "
    f"difference, or {NOISE:.0%} beyond a range. A miss is undecided where noise may be why."
)
ENTRY = re.compile(
    r"(?:(?P<count>\d+) of )?"
    r"(?P<networks>[\dx, and-]+), batch (?P<batch>\d+): (?:(?P<most>at most )|(?P<low>[\d.]+) to )?(?P<high>[\d.]+) "
    r"(?:us(?: (?P<way>less|more) than (?P<base>[\w-]+))?|x of (?P<of>[\w-]+))"
)
ONE_CHIP = ("H100 80GB HBM3", "H200")  # but for the memory
CACHED_BYTES = 50 << 20  # of L2: where a network's float32 weights fit, that memory has no say
CPU = "CPU"
NOT_HERE = "not judged on another"  # GPU, or CPU
GPU = re.compile(r"on (?P<gpu>[^:;,]+): ")


@dataclass(frozen=True)
class Prediction:
    """The predicted numbers of a stage for one network and batch."""

    network: str  # `784-128-128-128-10`
    batch: int
    gpu: str  # part of its name, or of `CPU with 2 cores`; empty for any
    text: str  # `15 to 20 us`, `2 to 3x as fast as naive`
    low: float
    high: float
    of: str  # the stage that it is compared with; empty for a time
    is_factor: bool = False
    is_less: bool = False  # less than `of`, in us; otherwise more
    count: int = 1  # of networks that train

    @property
    def near(self) -> float:
        """The share by which a measured number may leave the predicted ones."""
        if self.low < self.high:
            return NOISE
        return NEAR_FACTOR if self.is_factor else NEAR_DIFFERENCE if self.of else NEAR_TIME


@dataclass(frozen=True)
class Judgement:
    """A prediction beside the measurement."""

    predicted: str
    measured: str  # `10% slower than predicted`, `0.26 us less than naive`, `2x as fast as naive`
    hit: bool
    undecided: bool  # no hit, but noise may be why
    is_of_another: bool  # compared with a stage other than the one that the rung climbs from

    @property
    def text(self) -> str:
        """`hit`, `hit: 1.02x as fast as tf32` beside a ratio to another stage, or `missed: 10% slower`."""
        word = "hit" if self.hit else "undecided" if self.undecided else "missed"
        return word if self.hit and not self.is_of_another else f"{word}: {self.measured}"


def predictions(text: str) -> list[Prediction]:
    """The predictions of a `Predict` paragraph; ValueError for an entry of another form."""
    gpu = GPU.match(text)
    read = []
    for entry in filter(None, text[gpu.end() if gpu else 0 :].strip().removesuffix(".").split(";")):
        parts = ENTRY.fullmatch(entry.strip())
        if parts is None:
            raise ValueError(f"not a prediction: {entry.strip()}; write NETWORK, batch B: 15 to 20 us")
        high = float(parts["high"])
        low = 0.0 if parts["most"] else float(parts["low"] or high)
        of = parts["base"] or parts["of"] or ""
        for network in re.split(r", | and ", parts["networks"]):
            said = re.sub("^1x ", "", entry.partition(": ")[2].replace(" x of ", "x as fast as "))
            read.append(
                Prediction(
                    expanded(network.strip()), int(parts["batch"]), gpu["gpu"] if gpu else "", said, low, high, of,
                    is_factor=bool(parts["of"]), is_less=parts["way"] == "less", count=int(parts["count"] or 1),
                )
            )  # fmt: skip
    return read


def expanded(network: str) -> str:
    """`784-128x3-10` as `784-128-128-128-10`."""
    return re.sub(r"(\d+)x(\d+)", lambda part: "-".join([part[1]] * int(part[2])), network)


def _machine(stage: StageResult, results: Results, *, on_like_chip: bool = False) -> str:
    """The name of the GPU, and of those with its chip if that is enough; on the CPU also `CPU with 2 cores`."""
    name = gpu_name(results)
    if stage.device != "cpu":
        cached = on_like_chip and 4 * sum(results.problem.weights) <= CACHED_BYTES
        return ", ".join((name, *ONE_CHIP)) if cached and any(chip in name for chip in ONE_CHIP) else name
    return f"{name}, {CPU} with {results.environment.get('cpu', {}).get('cores_usable')} cores"


def _here(stage: StageResult, results: Results) -> Prediction | None:
    """What was predicted of a stage for this run's network and batch, on any GPU."""
    try:
        known = predictions(stage.doc.predict) if stage.doc is not None else []
    except ValueError:  # a user's own words: they are shown, not judged
        return None
    problem = results.problem
    wanted = problem.network, problem.batch_size, problem.networks
    return next((told for told in known if (told.network, told.batch, told.count) == wanted), None)


def judge(stage: StageResult, results: Results, *, on_like_chip: bool = False) -> Judgement | None:
    """The prediction that applies to a stage beside its measured time; None if there is none, or no time.

    On a like chip, one for an H200 counts on an H100, where the weights fit in the cache.
    """
    predicted, own_us = _here(stage, results), median_us(stage)
    if predicted is None or own_us is None or predicted.gpu not in _machine(stage, results, on_like_chip=on_like_chip):
        return None
    base = results.stage(predicted.of) if predicted.of else None
    base_us = median_us(base)
    if predicted.of and base_us is None:
        return None
    measured, text = _measured(predicted, own_us, base_us or 0.0)
    own = host_times(stage)
    ends_us: Sequence[float] = own.ends_us
    if base is not None and base_us is not None:
        ratio = ratio_of(host_times(base), own)
        ends_us = [base_us / times for times in ratio.interval] if ratio.is_noise else [own_us]
    ends = sorted(_measured(predicted, us, base_us or 0.0)[0] for us in ends_us)
    low, high = predicted.low * (1 - predicted.near), predicted.high * (1 + predicted.near)
    hit, reaches = low <= measured <= high, ends[0] <= high and low <= ends[-1]
    of_this = stage.device == "cpu" or predicted.gpu in gpu_name(results)
    told = predicted.text if of_this else f"{predicted.text} on {predicted.gpu}"
    return Judgement(told, text, hit, reaches and not hit, predicted.of not in ("", stage.below))


def outcome(stage: StageResult, results: Results) -> tuple[str, str]:
    """What was predicted for this network and batch, and the verdict: (`15 to 20 us`, `hit`).

    Both are empty without a prediction. One for another GPU is shown with its name, and not judged on another chip;
    behind a colon is what it would be compared with, where the rung climbs from another stage.
    """
    judgement = judge(stage, results)
    if judgement is not None:
        return judgement.predicted, judgement.text
    predicted = _here(stage, results)
    if predicted is None:
        return "", ""
    if predicted.gpu not in _machine(stage, results):
        kind = CPU if predicted.gpu.startswith(CPU) else "GPU"
        base_us, own_us = (median_us(one) for one in (results.stage(predicted.of), stage))
        measured = ""
        if base_us is not None and own_us is not None and predicted.of != stage.below:
            measured = f": {_measured(predicted, own_us, base_us)[1]}"
        return f"{predicted.text} on {predicted.gpu}", f"{NOT_HERE} {kind}{measured}"
    return predicted.text, f"not judged: {predicted.of if predicted.of else stage.name} has no time"


def _measured(prediction: Prediction, own_us: float, base_us: float) -> tuple[float, str]:
    """The measured number in the prediction's own quantity, as a number and in words."""
    if prediction.is_factor:
        return base_us / own_us, f"{numbers.ratio(base_us / own_us)} as fast as {prediction.of}"
    if prediction.of:
        less_us = base_us - own_us
        words = f"{numbers.microseconds(abs(less_us))} us {'less' if less_us >= 0 else 'more'} than {prediction.of}"
        return less_us if prediction.is_less else -less_us, words
    nearest = min(max(own_us, prediction.low), prediction.high)
    apart = own_us / nearest - 1
    return own_us, f"{numbers.share(abs(apart))} {'slower' if apart > 0 else 'faster'} than predicted"


def judged(results: Results) -> list[tuple[StageResult, Judgement]]:
    """Every rung whose prediction this run can judge, in the order of the run."""
    rungs = [stage for stage in results.stages if stage.group != "reference"]
    return [(stage, judgement) for stage in rungs if (judgement := judge(stage, results)) is not None]
