"""Whether to leave PyTorch for a network, from what each way to train it should take (`ladder.run.outlook`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ladder.records.exactness import CLASSES
from ladder.records.expectation import CAPTURED, PLAIN, Outlook, Outlooks
from reports.facts import numbers

REFERENCES = {
    "torch-eager": "PyTorch, eager, data on the device",
    CAPTURED: "PyTorch, one CUDA graph per step",
    "torch-compile": "PyTorch, compiled steps",
    "torch-graph": "PyTorch, compiled, an epoch in a graph",
    "torch-graph-amp": "PyTorch, the same in mixed precision",
    "jax-scan": "JAX, an epoch in a scan",
    "jax-scan-bf16": "JAX, the same in bfloat16",
}
IN_FLOAT32 = {"torch-graph-amp": "torch-graph", "jax-scan-bf16": "jax-scan"}  # a reference decides if it beats this one
WORTH_TRYING = 1.3  # a gain that overlapping ranges may take away again
SHORT_S = 60.0  # a training of less in eager mode is not worth a change
CHANGES = (
    "Keep the data on the device: `x = x.cuda()` once, and `x[rows]` for a batch.",
    "Have no `.item()` or `print(loss)` in the loop: sum the loss on the device.",
    "Use `Adam(params, fused=True, capturable=True)`; for SGD `fused=True` alone.",
    "Record one step by `torch.cuda.graph(graph)`; `graph.replay()` runs each.",
)


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

    Eager mode and a captured step alone if options are ignored: the others train by plain SGD alone.
    """
    stages = {outlook.name: outlook for outlook in outlooks.stages}
    if outlooks.ignored:
        stages = {name: stages[name] for name in ("torch-eager", CAPTURED) if name in stages}
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
    told = {"deciding": names, "verdict": verdict(outlooks), "changes": changes(outlooks)}
    return {**_rounded({**facts, "gains": gains}), **guess, **told}


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
    is_sure, libraries = _of_libraries(stages, outlooks)
    lead = [*_of_eager(stages, outlooks), *libraries[:is_sure]]
    said = [" ".join(lead), _of_host(stages, outlooks), *libraries[is_sure:]]
    if outlooks.ignored:
        return [
            *filter(None, said[:2]),
            "JAX and the hand-written kernels here train by plain SGD alone, and are left out.",
        ]
    return list(filter(None, [*said, _of_pytorch(stages, outlooks), " ".join(_of_kernels(stages, outlooks))]))


def changes(outlooks: Outlooks) -> list[str]:
    """What to change in the usual loop, in this order; nothing where that should save little."""
    stages = {outlook.name: outlook for outlook in deciding(outlooks)}
    return list(CHANGES) if _may_capture(stages, outlooks) else []


def _saved_s(eager: Outlook, captured: Outlook, outlooks: Outlooks) -> tuple[float, float, float]:
    """Seconds of the whole training that a captured step saves, at least and at most; both load for as long."""
    (slow_low, slow_high), (fast_low, fast_high) = _range(eager), _range(captured)
    pairs = ((expected_us(eager), expected_us(captured)), (slow_low, fast_high), (slow_high, fast_low))
    later_s = captured.prepare_s - eager.prepare_s
    expected_s, least_s, most_s = ((slow - fast) * outlooks.steps / 1e6 - later_s for slow, fast in pairs)
    return expected_s, least_s, most_s


def _captures(stages: dict[str, Outlook], outlooks: Outlooks) -> bool:
    """Whether one CUDA graph per step surely saves time, and enough."""
    return _may_capture(stages, outlooks) and _saved_s(stages["torch-eager"], stages[CAPTURED], outlooks)[1] > 0


def _may_capture(stages: dict[str, Outlook], outlooks: Outlooks) -> bool:
    """Whether it may save enough to time it."""
    eager, captured = stages.get("torch-eager"), stages.get(CAPTURED)
    if eager is None or captured is None:
        return False
    return _saved_s(eager, captured, outlooks)[0] > 0 and gain(eager, captured).times > WORTH_TRYING


def _of_eager(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """What the training takes in eager mode, and what a captured step should save of it."""
    eager, captured = stages.get("torch-eager"), stages.get(CAPTURED)
    if eager is None:
        return
    epochs = numbers.count(outlooks.epochs, "epoch")
    if outlooks.own_eager:
        us, took = expected_us(eager), numbers.duration(expected_us(eager) * outlooks.steps / 1e6)
        yield f"At {numbers.microseconds(us)} us per step, as measured, {epochs} take {took} after loading."
    else:
        least, most = (f"{times:.1f}" for times in outlooks.dataloader)
        yield (
            f"{epochs} should take {_took(eager, outlooks)} in eager PyTorch with data on the device, {least} to "
            f"{most} times as long with a DataLoader."
        )
    if captured is None:
        return
    expected_s, least_s, most_s = _saved_s(eager, captured, outlooks)
    if _captures(stages, outlooks):
        is_short = expected_s < SHORT_S
        often = f", or {numbers.rough_duration(100 * expected_s)} in 100 such trainings" * is_short
        what = "they" if outlooks.own_eager else "one CUDA graph per step alone"
        yield (
            f"{'If you train often, m' if is_short else 'M'}ake the changes below: {what} should save "
            f"{numbers.duration(expected_s)} ({numbers.duration_range(least_s, most_s)}){often}."
        )
    elif _may_capture(stages, outlooks):
        yield (
            f"Stay in eager mode, or time the changes below: one CUDA graph per step may save "
            f"{numbers.duration(expected_s)}, but the ranges overlap."
        )
    else:
        yield "Stay in eager mode: one CUDA graph per step should save little, if anything."


def _of_host(stages: dict[str, Outlook], outlooks: Outlooks) -> str:
    """What the user's own step tells beside the expected one, or what that leaves out; empty without eager mode."""
    eager = stages.get("torch-eager")
    if eager is None:
        return ""
    us, expected = expected_us(eager), math.sqrt(math.prod(eager.carried_us))
    told = f"the {numbers.microseconds(expected)} us expected of plain SGD with data on the device"
    if not outlooks.own_eager:
        add = "add" if len(outlooks.ignored) > 1 else "adds"
        added = f": {numbers.listing(outlooks.ignored)} {add} to them" if outlooks.ignored else ""
        return (
            f"These times are for a slow host and plain SGD{added}. Time a step of your own loop, and give it as in "
            f"`--measured-eager 2ms`: the advice then follows from it."
        )
    if us > WORTH_TRYING * expected:
        added = numbers.listing(["loading", "`.item()`", *outlooks.ignored])
        beyond = numbers.microseconds(us - expected)
        return f"Your step takes {beyond} us beyond {told}: {added} may be why. Begin with the data."
    is_fast = us < expected / WORTH_TRYING
    return f"Your step takes less than {told}: your host is faster than ours, so a graph saves less." * is_fast


def _of_libraries(stages: dict[str, Outlook], outlooks: Outlooks) -> tuple[bool, list[str]]:
    """Whether a library surely takes less in all than what was advised so far, and what is said of libraries.

    Of ways that should take about as long it is the one that changes least: the first of `REFERENCES`. Slower ones
    whose ranges overlap with its range are named.
    """
    if "torch-eager" not in stages:
        return False, []
    totals = {name: whole(stages[name], outlooks) for name in REFERENCES if name in stages}
    base = totals[CAPTURED if _captures(stages, outlooks) else "torch-eager"]
    others = [total for name, total in totals.items() if name not in (CAPTURED, "torch-eager")]
    if not others:
        return False, []
    if not (sure := [total for total in others if gain(base, total).is_sure]):
        quickest = min(others, key=expected_us)
        if gain(base, quickest).times > WORTH_TRYING:
            took = _took(stages[quickest.name], outlooks)
            return False, [f"`{quickest.name}` may take less in all, {took}, but the ranges overlap: time it first."]
        return False, [f"No other library in the table surely takes less than `{base.name}`."]
    fastest = min(sure, key=expected_us)
    ties = [total for total in others if not gain(total, fastest).is_sure]
    best = next(total for total in ties if total in sure and gain(total, fastest).times < WORTH_TRYING)
    library = "JAX" if best.name.startswith("jax") else "PyTorch"
    said = [
        f"Use {library} as in `{best.name}` ({numbers.precision(best.precision)}), "
        f"{_took(stages[best.name], outlooks)}: {gain(base, best).text} as fast as `{base.name}`, preparation included."
    ]
    if near := [f"`{one.name}` ({training_range(stages[one.name], outlooks)})" for one in ties if one is not best]:
        time_it = "time it first" if len(near) == 1 else "time them first"
        said.append(f"{numbers.listing(near)} may take no longer, as the ranges overlap: {time_it}.")
    return True, said


def _of_pytorch(stages: dict[str, Outlook], outlooks: Outlooks) -> str:
    """From how many epochs on it pays to compile and to capture an epoch; empty if it surely never does."""
    names = ("torch-compile", "torch-graph", "torch-graph-amp")
    eager, *others = [stages.get(name) for name in (CAPTURED if _captures(stages, outlooks) else "torch-eager", *names)]
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
    if lower is not exact and (gained := gain(best, lower)).is_sure:
        yield f"In {precision}, a step of `{lower.name}` is {gained.text} as fast as `{best.name}` in {own}."
    elif best.name in IN_FLOAT32:
        yield f"No rung here of lower precision is surely faster than `{best.name}`."
    if "torch-eager" in stages:
        fastest = min(rungs, key=lambda outlook: training_s(outlook, outlooks))
        rival = min((stages[name] for name in REFERENCES if name in stages), key=lambda one: training_s(one, outlooks))
        over = gain(whole(rival, outlooks), whole(fastest, outlooks))
        compared = f"{over.text} as fast as" if over.is_sure else "not surely less than"
        yield (
            f"Preparation included, `{fastest.name}` ({numbers.precision(fastest.precision)}) should take "
            f"{_took(fastest, outlooks)}: {compared} `{rival.name}`, the quickest library."
        )


def notes(outlooks: Outlooks) -> list[str]:
    """What the range and the model are, how far the model was off, and what the times do not count."""
    stages = deciding(outlooks)
    by_model = [outlook for outlook in stages if not outlook.is_recorded and outlook.low_us < outlook.high_us]
    others = "; other times are recorded" if any(outlook.is_recorded for outlook in stages) else ""
    of_model = ""
    if by_model:
        median, most = (_ends(row.median_error for row in by_model), _ends(row.most_error for row in by_model))
        of_model = (
            f" ~ marks a model's estimates{others}: on networks that it had not seen, off by {median} typically, and "
            f"by at most {most} in nine of ten cases."
        )
    host = _pace(outlooks, stages)
    untold = ""
    if outlooks.untold:
        names = numbers.listing(f"`{name}`" for name in outlooks.untold)
        untold = f" Too few networks are recorded to give a range for {names}: `advise --measure` times what may win."
    is_guess = ", which is a guess as well" * bool(outlooks.guess and by_model)
    return [f"Nine in ten should lie within the range{is_guess}.{of_model}{untold}", host]


def _pace(outlooks: Outlooks, stages: Sequence[Outlook]) -> str:
    """What sets the pace of the rows, and how those are made that have no recording of their own."""
    names, said = {one.name for one in stages}, []
    if outlooks.own_eager and "torch-compile" in names:
        said.append("Your step scales `torch-compile` too, whose pace the host sets as well.")
    if CAPTURED in names and outlooks.layer_us is not None:
        allows = f" allows for {numbers.listing(outlooks.ignored)}, but" if outlooks.ignored else ""
        said.append(
            f"`{CAPTURED}`, one CUDA graph per step, is estimated as `torch-graph` (compiled, one graph per epoch), "
            f"whose errors it has, and {outlooks.layer_us:.0f} us per layer, as recorded with `{PLAIN}`. Its "
            f"range{allows} is checked by few recordings."
        )
    if "torch-compile" in names:
        said.append("`torch-compile` is recorded in bf16 alone; the `compile` of `torch` is float32.")
    if not outlooks.own_eager and names & {"torch-eager", "torch-compile"}:
        said.append(f"Eager steps differed by up to {outlooks.eager_differs:.1f}x between recordings.")
    said.append(f"`prepare` loads libraries and compiles, on our host ({outlooks.host}).")
    return " ".join(said)


def _ends(errors: Iterable[float]) -> str:
    """The least and the largest error: `9% to 14%`, or `9%`."""
    told = sorted(errors)
    return " to ".join(dict.fromkeys(numbers.rough_share(told[end]) for end in (0, -1)))
