"""Whether to leave PyTorch for a network, from what each way to train it should take (`ladder.run.outlook`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ladder.records.exactness import CLASSES
from ladder.records.expectation import Outlook, Outlooks, OwnModelRun
from reports.facts import numbers

REFERENCES = {
    "torch-eager": "PyTorch, eager",
    "torch-compile": "PyTorch, compiled steps",
    "torch-graph": "PyTorch, compiled, an epoch in a graph",
    "torch-graph-amp": "PyTorch, the same in mixed precision",
    "jax-scan": "JAX, an epoch in a scan",
    "jax-scan-bf16": "JAX, the same in bfloat16",
}
IN_FLOAT32 = {"torch-graph-amp": "torch-graph", "jax-scan-bf16": "jax-scan"}  # a reference decides if it beats this one
WORTH_TRYING = 1.3  # a gain that overlapping ranges may take away again
SHORT_S = 60.0  # a training of less in eager mode is not worth a change
TIME_IT = "`python run_ladder.py torch my_model.py` times it, and `--write train_fast.py` makes the best rung a script"
GRAPH = "one CUDA graph per step"


class Gain(NamedTuple):
    """How many times as fast one stage should be as another, and the range in which nine in ten should lie."""

    times: float
    least: float
    most: float

    @property
    def is_sure(self) -> bool:
        """Whether the ranges of the two do not overlap."""
        return self.least > 1

    @property
    def text(self) -> str:
        """`14x (8.2-24)`."""
        return numbers.rough_ratio(*self)


def gain(slow: Outlook, fast: Outlook) -> Gain:
    """The gain of one stage over another, and the least and the most that their ranges allow."""
    (slow_low, slow_high), (fast_low, fast_high) = _range(slow), _range(fast)
    return Gain(expected_us(slow) / expected_us(fast), slow_low / fast_high, slow_high / fast_low)


def _range(outlook: Outlook) -> tuple[float, float]:
    """The ends of the range in us, which a measured time is alone."""
    measured = outlook.measured_us
    return (outlook.low_us, outlook.high_us) if measured is None else (measured, measured)


def expected_us(outlook: Outlook) -> float:
    """The measured time of a step in us, else the expected one."""
    return outlook.us if outlook.measured_us is None else outlook.measured_us


def whole(outlook: Outlook, outlooks: Outlooks) -> Outlook:
    """The same with the times of the whole training in place of a step's, loading and compiling included."""

    def total(us: float, prepare_s: float = outlook.prepare_s) -> float:
        return prepare_s * 1e6 + us * outlooks.steps

    least_s, most_s = outlook.prepare_ends_s
    return msgspec.structs.replace(
        outlook,
        us=total(outlook.us),
        low_us=total(outlook.low_us, least_s),
        high_us=total(outlook.high_us, most_s),
        measured_us=None if outlook.measured_us is None else total(outlook.measured_us),
    )


def training_s(outlook: Outlook, outlooks: Outlooks) -> float:
    """Seconds of the whole training, loading and compiling included."""
    return expected_us(whole(outlook, outlooks)) / 1e6


def training_range(outlook: Outlook, outlooks: Outlooks) -> str:
    """The range of the whole training, `8.9-19 s`; `measured` where its step was."""
    low_us, high_us = _range(whole(outlook, outlooks))
    return numbers.duration_range(low_us / 1e6, high_us / 1e6) if outlook.measured_us is None else "measured"


def _took(outlook: Outlook, outlooks: Outlooks) -> str:
    """The whole training and its range: `13 s (8.9-19 s)`."""
    return f"{numbers.duration(training_s(outlook, outlooks))} ({training_range(outlook, outlooks)})"


def pays_from(eager: Outlook, outlook: Outlook, outlooks: Outlooks) -> int:
    """The epochs from which on a faster stage makes up for the time that it takes to compile."""
    saved_s = (expected_us(eager) - expected_us(outlook)) * outlooks.steps_per_epoch / 1e6
    return max(1, math.ceil((outlook.prepare_s - eager.prepare_s) / saved_s))


def _rounded_up(epochs: int) -> int:
    """In two digits: an estimate has no more."""
    unit = int(10 ** max(0, len(str(epochs)) - 2))
    return -(-epochs // unit) * unit


def deciding(outlooks: Outlooks) -> list[Outlook]:
    """The stages that decide: references, the fastest rung in float32, and faster ones of either in lower precision.

    PyTorch's alone if options are ignored: the others train by plain SGD alone.
    """
    stages = {outlook.name: outlook for outlook in outlooks.stages}
    if outlooks.ignored:
        stages = {name: outlook for name, outlook in stages.items() if name.startswith("torch-")}
    losing = {
        name
        for name, exact in IN_FLOAT32.items()
        if {name, exact} <= stages.keys() and stages[name].us >= stages[exact].us
    }
    kept = [stages[name] for name in REFERENCES if name in stages and name not in losing]
    rungs = [outlook for outlook in stages.values() if outlook.group not in ("reference", "cpu")]
    exact = _fastest(outlook for outlook in rungs if CLASSES[outlook.precision] == "float32")
    lower = _fastest(outlook for outlook in rungs if CLASSES[outlook.precision] != "float32")
    kept += [exact] if exact else []
    if lower and (not exact or lower.us < exact.us):
        kept.append(lower)
    return kept


def _fastest(stages: Iterable[Outlook | None]) -> Outlook | None:
    return min(filter(None, stages), key=lambda outlook: outlook.us, default=None)


def advice_facts(outlooks: Outlooks) -> dict[str, Any]:
    """The outlook as plain data for JSON, in four digits: the stages that decide, their gains and the verdict.

    A gain of each stage over eager mode has its range; `is_sure` tells whether it exceeds the errors of both. There
    is none where options are ignored, as these change it by an unknown amount.
    """
    stages = deciding(outlooks)
    facts = msgspec.to_builtins(msgspec.structs.replace(outlooks, stages=stages))
    for fact in facts["stages"]:
        is_own = outlooks.own_eager and outlooks.ignored and fact["name"] == "torch-eager"
        fact["optimizer"] = "own" if is_own else "sgd"
        fact["nine_in_ten_error"] = fact.pop("most_error")
    gains = [
        {"stage": outlook.name, "over": eager.name, **gained._asdict(), "is_sure": gained.is_sure}
        for eager in stages
        for outlook in stages
        if eager.name == "torch-eager" != outlook.name and not outlooks.ignored and (gained := gain(eager, outlook))
    ]
    guess = {"guess": bool(outlooks.guess), "guess_reason": outlooks.guess}
    names = [outlook.name for outlook in stages]
    return {**_rounded({**facts, "gains": gains}), **guess, "deciding": names, "verdict": verdict(outlooks)}


def _rounded(value: Any) -> Any:
    """Plain data whose fractions have four significant digits."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def verdict(outlooks: Outlooks) -> list[str]:
    """The whole training's time and what to do, when PyTorch's own ways pay off, and what hand-written kernels gain."""
    stages = {outlook.name: outlook for outlook in deciding(outlooks)}
    if outlooks.ignored:
        return list(_of_own_model(stages, outlooks))
    said = [
        *_of_libraries(stages, outlooks),
        _of_host(stages, outlooks),
        _of_pytorch(stages, outlooks),
        " ".join(_of_kernels(stages, outlooks)),
    ]
    return list(filter(None, said))


def _of_own_model(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """Whether a change may be worth it in PyTorch, and how to measure it where the model leaves options out."""
    eager, ignored = stages.get("torch-eager"), numbers.listing(outlooks.ignored)
    if eager is not None:
        total = whole(eager, outlooks)
        is_short = (total.measured_us or total.high_us) / 1e6 < SHORT_S  # at most, as options may add to it
        epochs, took = numbers.count(outlooks.epochs, "epoch"), numbers.duration(training_s(eager, outlooks))
        first = f"try {GRAPH} first" if _is_launching(stages, outlooks) else "time a faster way first"
        worth = (
            f"{'A change saves seconds at most; i' if outlooks.own_eager else 'I'}f you train often, {first}"
            if is_short
            else f"{first[0].upper()}{first[1:]}"
        )
        added = numbers.listing([*outlooks.ignored, "a DataLoader"])
        counted = f" ({training_range(eager, outlooks)}: plain SGD, data on the device; {added} add to it)"
        about = f"about {took}" if outlooks.own_eager else f"about {took} or more{counted}"
        yield f"In eager PyTorch {epochs} {'takes' if outlooks.epochs == 1 else 'take'} {about}. {worth}."
    yield from _of_recorded(outlooks.own_model)
    yield from filter(None, [_of_host(stages, outlooks)])
    if outlooks.own_eager:
        yield f"Only your own `torch-eager` includes {ignored}; the other rows are of plain SGD, so no ratio is given."
    else:
        yield f"{ignored} {'add' if len(outlooks.ignored) > 1 else 'adds'} to every row, by how much is unknown."
    yield "JAX and the rungs here train by plain SGD alone, and are left out."


def _is_launching(stages: dict[str, Outlook], outlooks: Outlooks) -> bool:
    """Whether one CUDA graph per step should gain: PyTorch's own graph of an epoch does, and the gain is recorded."""
    eager, graph = stages.get("torch-eager"), stages.get("torch-graph")
    return bool(outlooks.own_model and eager and graph and gain(eager, graph).times > WORTH_TRYING)


def _of_recorded(run: OwnModelRun | None) -> Iterator[str]:
    """What one CUDA graph per step gained a recorded PyTorch model, and how to have the same of one's own."""
    if run is None:
        return
    resident = f", {numbers.microseconds(run.resident_us)} with data on the device" if run.resident_us else ""
    kind = f"{run.optimizer}{', dropout' * run.has_dropout}"
    yield (
        f"One CUDA graph per step compiles nothing, and has no row here. Recorded with `{run.name}` ({kind}, "
        f"{numbers.count(run.parameters, 'parameter')}, batch {run.batch_size:,}), on an {run.gpu} with a slow host: "
        f"{numbers.count(run.epochs, 'epoch')} were {numbers.ratio(run.times)} as fast as by the usual loop "
        f"(DataLoader, .item()), preparation of {numbers.duration(run.prepare_s)} included. A step of that loop took "
        f"{numbers.microseconds(run.loop_us)} us{resident}, and {numbers.microseconds(run.graph_us)} in the graph "
        f"({run.path}): where yours takes less already, expect less."
    )
    yield (
        f"`python run_ladder.py torch --example {run.name} > my_model.py` writes a file: replace its model and data; "
        f"{TIME_IT}."
    )


def _of_libraries(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """Which library trains fastest, preparation included, as far as it is surely faster than eager mode.

    Of ways that should take about as long it is the one that changes least: the first of `REFERENCES`. Slower ones
    whose ranges overlap with its range are named. One CUDA graph per step goes before all of them where it gains.
    """
    eager = stages.get("torch-eager")
    if eager is None:
        return
    totals = {name: whole(stages[name], outlooks) for name in REFERENCES if name in stages}
    took = f"{numbers.count(outlooks.epochs, 'epoch')} should take {_took(eager, outlooks)} in eager PyTorch"
    is_short, is_launching = _range(totals[eager.name])[1] / 1e6 < SHORT_S, _is_launching(stages, outlooks)
    recorded = list(_of_recorded(outlooks.own_model)) if is_launching else []
    first = f"try {GRAPH} first" * is_launching
    sure = {name: total for name, total in totals.items() if gain(totals[eager.name], total).is_sure}
    if not sure:
        quickest = min(totals.values(), key=expected_us)
        may_gain = gain(totals[eager.name], quickest).times > WORTH_TRYING
        stay = f"stay in eager mode{f', or time it and `{quickest.name}` yourself' * may_gain}"
        yield _advised(took, first or stay, is_short=is_short and is_launching)
        yield from recorded
        if may_gain:
            may_take = f"`{quickest.name}` may take {_took(stages[quickest.name], outlooks)}"
            yield f"{may_take}, but its range overlaps with eager mode's."
        else:
            yield "No library in the table surely takes less than eager mode."
        return
    fastest = min(sure.values(), key=expected_us)
    ties = [
        name for name, total in totals.items() if total is not totals[eager.name] and not gain(total, fastest).is_sure
    ]
    best = next(name for name in ties if name in sure and gain(totals[name], fastest).times < WORTH_TRYING)
    library = "JAX" if best.startswith("jax") else "PyTorch"
    precision = numbers.precision(stages[best].precision)
    way = f"{library} as in `{best}` ({precision}), {_took(stages[best], outlooks)}"
    times = f"{gain(totals[eager.name], totals[best]).text} as fast as eager, preparation included"
    then = f"{first}{', then ' * is_launching}use {way}: {times}"
    yield _advised(took, then, is_short=is_short)
    yield from recorded
    if others := [f"`{name}` ({training_range(stages[name], outlooks)})" for name in ties if name != best]:
        time_it = "time it first" if len(others) == 1 else "time them first"
        yield f"{numbers.listing(others)} may take no longer, as the ranges overlap: {time_it}."


def _advised(took: str, advice: str, *, is_short: bool) -> str:
    """What the training takes, and the advice; it is for who trains often where all takes seconds."""
    return (
        f"{took}, so a change saves seconds at most. If you train often, {advice}."
        if is_short
        else f"{took}: {advice}."
    )


def _of_host(stages: dict[str, Outlook], outlooks: Outlooks) -> str:
    """What data on the device save, and how to have one's own host's pace; empty without eager mode."""
    if "torch-eager" not in stages or outlooks.own_eager:
        return ""
    least, most = (f"{times:.1f}" for times in outlooks.dataloader)
    yours = "replaces the row of `torch-eager`" if outlooks.ignored else "scales eager and compiled steps to your host"
    return (
        f"All rows keep their data on the device: with a DataLoader, eager steps took {least} to {most} times as long. "
        f"`--measured-eager 2ms`, the time of your own eager step, {yours}."
    )


def _of_pytorch(stages: dict[str, Outlook], outlooks: Outlooks) -> str:
    """From how many epochs on it pays to compile and to capture an epoch; empty if it surely never does."""
    names = ("torch-eager", "torch-compile", "torch-graph", "torch-graph-amp")
    eager, *others = [stages.get(name) for name in names]
    if eager is None or others[0] is None or not any(others[1:]):
        return ""
    unsure: list[str] = []
    best = [(eager, 0)]  # ways, each from as many epochs on until the next one
    for outlook in sorted(filter(None, others), key=lambda one: -one.us):
        if all(gain(slow, outlook).is_sure for slow, _ in best):
            least = max(pays_from(slow, outlook, outlooks) for slow, _ in best)
            best = [*((slow, epochs) for slow, epochs in best if epochs < least), (outlook, least)]
        else:
            unsure.append(f"`{outlook.name}`")
    pays = ", then ".join(
        f"`{fast.name}` ({numbers.precision(fast.precision)}) over `{slow.name}` after about "
        f"{numbers.count(_rounded_up(least), 'epoch')}"
        for (slow, _), (fast, least) in itertools.pairwise(best)
    )
    if not pays:
        return ""
    left_out = f" No gain of {' or '.join(unsure)} is sure." if unsure else ""
    return f"Within PyTorch, {pays.replace(' over', ' pays off over', 1)}, counting compilation.{left_out}"


def _of_kernels(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """Whether kernels of one's own are worth it."""
    rungs = [outlook for outlook in stages.values() if outlook.name not in REFERENCES]
    library = _fastest(map(stages.get, IN_FLOAT32.values()))
    best = _fastest([library, *map(stages.get, IN_FLOAT32)])
    if library is None or best is None or not rungs:
        return
    exact, lower = rungs[0], rungs[-1]
    gained = gain(library, exact)
    if gained.is_sure and CLASSES[exact.precision] == "float32":
        yield (
            f"A step of hand-written kernels in float32, as in `{exact.name}`, is {gained.text} as fast as "
            f"`{library.name}`."
        )
    else:
        may = f"; a step of `{exact.name}` may be {gained.text} as fast" * (gained.times > WORTH_TRYING)
        yield f"Per step, no float32 rung here is surely faster than the best library's, `{library.name}`{may}."
    own, precision = numbers.precision(best.precision), numbers.precision(lower.precision)
    if (gained := gain(library, best)).is_sure:
        yield f"In {own}, a step of `{best.name}` is {gained.text} as fast as `{library.name}`."
    if lower is not exact and (gained := gain(best, lower)).is_sure:
        yield f"In {precision}, a step of `{lower.name}` is {gained.text} as fast as `{best.name}` in {own}."
    elif best.name in IN_FLOAT32:
        yield f"No rung here of lower precision is surely faster than `{best.name}`."
    if "torch-eager" in stages:
        fastest = min(rungs, key=lambda outlook: training_s(outlook, outlooks))
        rival = min((stages[name] for name in REFERENCES if name in stages), key=lambda one: training_s(one, outlooks))
        over, over_eager = (
            gain(whole(one, outlooks), whole(fastest, outlooks)) for one in (rival, stages["torch-eager"])
        )
        and_eager = f"; it is {over_eager.text} as fast as `torch-eager`" * over_eager.is_sure
        overlaps = f"its range overlaps with that of `{rival.name}`, the quickest library{and_eager}"
        compared = f"{over.text} as fast as `{rival.name}`, the quickest library" if over.is_sure else overlaps
        yield (
            f"Preparation included, `{fastest.name}` ({numbers.precision(fastest.precision)}) should take "
            f"{_took(fastest, outlooks)} for all of it: {compared}."
        )


def notes(outlooks: Outlooks) -> list[str]:
    """What the range and the model are, how far the model was off, and what the times do not count."""
    stages = deciding(outlooks)
    by_model = [outlook for outlook in stages if not outlook.is_recorded]
    others = "; other times are recorded" if len(by_model) < len(stages) else ""
    and_gpu = " and on another GPU" if outlooks.guess else ""
    of_model = ""
    if by_model:
        median = _ends({row.name: row.median_error for row in by_model})
        most = _ends({row.name: row.most_error for row in by_model})
        of_model = (
            f" ~ marks estimates of a model{others}. On networks that it had not seen, it was typically off by "
            f"{median}, and in nine of ten cases by at most {most}; far from recorded networks{and_gpu} by more."
        )
    is_lower = any(one.name == "torch-compile" and one.precision == "bfloat16" for one in stages)
    compiled = "`torch-compile` is recorded in bf16 alone." if is_lower else ""
    epochs = numbers.count(outlooks.epochs, "epoch")
    training = f"Your training: {epochs} after `prepare`, which loads and compiles, on our host ({outlooks.host})."
    host = " ".join(filter(None, (compiled, _pace(outlooks, stages), training)))
    untold = ""
    if outlooks.untold:
        names = numbers.listing(f"`{name}`" for name in outlooks.untold)
        untold = f" Too few networks are recorded to give a range for {names}: `advise --measure` times what may win."
    is_guess = " on the GPUs that were timed; here the range is a guess as well" * bool(outlooks.guess and by_model)
    return [f"Nine in ten should lie within the range{is_guess}.{of_model}{untold}", host]


def _pace(outlooks: Outlooks, stages: Sequence[Outlook]) -> str:
    """Whose host sets the pace of eager and compiled steps."""
    if outlooks.own_eager:
        scaled = "" if outlooks.ignored else " It also scales `torch-compile`, whose pace the host sets too."
        return f"Your measured time is of your own data loading; other rows have their data on the device.{scaled}"
    if all(one.name not in ("torch-eager", "torch-compile") for one in stages):
        return ""
    is_recorded = any(one.is_recorded for one in stages if one.name in ("torch-eager", "torch-compile"))
    allowed = "; the range of a recorded step allows for that" * is_recorded
    return (
        f"The host sets the pace of eager and compiled steps, and ours are slow. Eager steps differed by up to "
        f"{outlooks.eager_differs:.1f}x between recordings{allowed}."
    )


def _ends(errors: dict[str, float]) -> str:
    """The least and the largest error of stages by name: `9% (jax-scan) to 14% (torch-graph)`, or `9%`."""
    least, most = (end(errors, key=errors.__getitem__) for end in (min, max))
    ends = [numbers.rough_share(errors[name]) for name in (least, most)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} (`{least}`) to {ends[1]} (`{most}`)"
