"""Whether to leave PyTorch for a network, from what each way to train it should take (`ladder.run.outlook`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ladder.records.exactness import CLASSES
from ladder.records.expectation import Outlook, Outlooks
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
NOISE = 1.05  # a gain below it is none
WORTH_TRYING = 1.3  # a gain that errors may take away again
SHORT_S = 60.0  # a training of less in eager mode is not worth a change
WRITE_IT = "`python run_ladder.py torch --example mlp > my_model.py` writes a file: replace its `model` and `optimizer`"
TIME_IT = "`python run_ladder.py torch my_model.py` times it, and `--write train_fast.py` makes the best rung a script"
USUALLY = "What usually pays: data on the device, the optimizer with fused=True, and one CUDA graph per step"


class Gain(NamedTuple):
    """How many times as fast one stage should be as another, and the range in which nine in ten should lie."""

    times: float
    least: float
    most: float

    @property
    def is_sure(self) -> bool:
        """Whether it exceeds the errors of both."""
        return self.least > NOISE

    @property
    def text(self) -> str:
        """`14x (8.2-24)`."""
        return numbers.rough_ratio(*self)


def gain(slow: Outlook, fast: Outlook) -> Gain:
    """The gain of one stage over another; both are carried to another GPU alike, and their errors are independent."""
    if slow.measured_us and fast.measured_us:
        times = slow.measured_us / fast.measured_us
        return Gain(times, times, times)
    ends = [a / b for a, b in zip(slow.carried_us, fast.carried_us, strict=True)]
    error = math.exp(math.hypot(_log_error(slow), _log_error(fast)))
    return Gain(math.sqrt(math.prod(ends)), min(ends) / error, max(ends) * error)


def _log_error(outlook: Outlook) -> float:
    """The logarithm of an error that nine in ten should stay below, up or down."""
    return math.log(max(outlook.high_us / max(outlook.carried_us), min(outlook.carried_us) / outlook.low_us))


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
        carried_us=list(map(total, outlook.carried_us)),
        measured_us=None if outlook.measured_us is None else total(outlook.measured_us),
    )


def training_s(outlook: Outlook, outlooks: Outlooks) -> float:
    """Seconds of the whole training, loading and compiling included."""
    return expected_us(whole(outlook, outlooks)) / 1e6


def _took(outlook: Outlook, outlooks: Outlooks) -> str:
    """The whole training and the ends of nine in ten: `13 s (8.9 s to 19 s)`; a measured or recorded one has none."""
    total = whole(outlook, outlooks)
    least, most = (numbers.duration(us / 1e6) for us in (total.low_us, total.high_us))
    is_measured = total.measured_us is not None or outlook.low_us == outlook.high_us
    ends = "" if is_measured or least == most else f" ({least} to {most})"
    return f"{numbers.duration(training_s(outlook, outlooks))}{ends}"


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
    """The outlook as plain data for JSON, in four digits, with the verdict, the stages that decide and their gains.

    A gain of each of these over eager mode has its range; `is_sure` tells whether it exceeds the errors of both.
    """
    stages = deciding(outlooks)
    facts = msgspec.to_builtins(outlooks)
    for fact in facts["stages"]:
        fact["nine_in_ten_error"] = fact.pop("most_error")
    gains = [
        {"stage": outlook.name, "over": eager.name, **gained._asdict(), "is_sure": gained.is_sure}
        for eager in stages
        for outlook in stages
        if eager.name == "torch-eager" != outlook.name and (gained := gain(eager, outlook))
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
        _of_pytorch(stages, outlooks),
        " ".join(_of_kernels(stages, outlooks)),
    ]
    return list(filter(None, said))


def _of_own_model(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """Whether a change may be worth it in PyTorch, and how to measure it where the model leaves options out."""
    eager, graph = stages.get("torch-eager"), stages.get("torch-graph")
    if eager is not None:
        total = whole(eager, outlooks)
        is_short = (total.measured_us or total.high_us) / 1e6 < SHORT_S  # at most, as options may add to it
        worth = "probably not worth your time, unless you train often" if is_short else "a faster way may be worth it"
        subject = "Your training takes" if outlooks.own_eager else "With plain SGD your training takes"
        yield f"{subject} about {_took(eager, outlooks)} in eager PyTorch: {worth}."
    ignored, add = numbers.listing(outlooks.ignored), "add" if len(outlooks.ignored) > 1 else "adds"
    if outlooks.own_eager:
        yield f"Only your own `torch-eager` counts {ignored}; the other rows are of plain SGD, so no ratio is given."
    else:
        yield f"{ignored} {add} to every row, by how much is unknown."
        if eager is not None and graph is not None and (gained := gain(eager, graph)).is_sure:
            yield f"An epoch in a CUDA graph makes a step of plain SGD {gained.text} as fast as eager; measure yours."
    yield "JAX and the rungs here train by plain SGD alone, and are left out."
    yield f"{WRITE_IT}; {TIME_IT}."
    yield f"{USUALLY}."


def _of_libraries(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """Which library trains fastest, preparation included, as far as it is surely faster than eager mode.

    Of ways that should take about as long it is the one that changes least: the first of `REFERENCES`. Slower ones
    whose ranges overlap with its range are named.
    """
    eager = stages.get("torch-eager")
    if eager is None:
        return
    totals = {name: whole(stages[name], outlooks) for name in REFERENCES if name in stages}
    took = f"{numbers.count(outlooks.epochs, 'epoch')} should take {_took(eager, outlooks)} in eager PyTorch"
    sure = {name: total for name, total in totals.items() if gain(totals[eager.name], total).is_sure}
    if not sure:
        quickest = min(totals.values(), key=expected_us)
        if gain(totals[eager.name], quickest).times > WORTH_TRYING:
            may = f"`{quickest.name}` may take {_took(stages[quickest.name], outlooks)}"
            yield f"{took}. {may}, but that gain is within the errors: stay in eager mode, or time both."
        else:
            yield f"{took}, and no library surely takes less: stay in eager mode."
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
    if training_s(eager, outlooks) < SHORT_S:
        yield f"{took}: probably not worth your time. If you train often, use {way}: {times}."
    else:
        yield f"{took}: use {way}: {times}."
    if others := [
        f"`{name}` ({numbers.duration(training_s(stages[name], outlooks))})" for name in ties if name != best
    ]:
        time_it = "time it first" if len(others) == 1 else "time them first"
        yield f"{numbers.listing(others)} may take no longer, as the ranges overlap: {time_it}."


def _of_pytorch(stages: dict[str, Outlook], outlooks: Outlooks) -> str:
    """From how many epochs on it pays to compile and to capture an epoch; empty if it surely never does."""
    eager, compiled = stages.get("torch-eager"), stages.get("torch-compile")
    graphs = sorted(filter(None, map(stages.get, ("torch-graph", "torch-graph-amp"))), key=lambda one: -one.us)
    if not graphs or compiled is None or eager is None:
        return ""
    faster = [compiled, *(one for one in graphs if gain(compiled, one).is_sure)]
    best: list[tuple[str, int]] = []  # ways, each from as many epochs on until the next one
    for outlook in (outlook for outlook in faster if gain(eager, outlook).is_sure):
        least = max(pays_from(stages[slow], outlook, outlooks) for slow in ("torch-eager", *(name for name, _ in best)))
        best = [*((name, epochs) for name, epochs in best if epochs < least), (outlook.name, least)]
    pays = ", then ".join(f"`{name}` after about {numbers.count(_rounded_up(least), 'epoch')}" for name, least in best)
    return f"Within PyTorch, {pays.replace(' after', ' pays off after', 1)}, counting compilation." if best else ""


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
        gained = gain(whole(rival, outlooks), whole(fastest, outlooks))
        times = f"{gained.text} as fast as" if gained.is_sure else "within the errors of"
        yield (
            f"Preparation included, `{fastest.name}` ({numbers.precision(fastest.precision)}) should take "
            f"{_took(fastest, outlooks)} for all of it, {times} `{rival.name}`, the quickest library."
        )


def notes(outlooks: Outlooks) -> list[str]:
    """What the range and the model are, how far the model was off, and what the times do not count."""
    stages = deciding(outlooks)
    by_model = [outlook for outlook in stages if not outlook.is_recorded]
    others = "; other times are recorded" if len(by_model) < len(stages) else ""
    and_gpu = " and on another GPU" if outlooks.guess else ""
    of_model = ""
    if by_model:
        median = _ends([row.median_error for row in by_model])
        most = _ends([row.most_error for row in by_model])
        of_model = (
            f" ~: by a model{others}. On networks that it had not seen, it was typically off by {median}, and in nine "
            f"of ten cases by at most {most}; far from recorded networks{and_gpu} by more."
        )
    is_lower = any(one.name == "torch-compile" and one.precision == "bfloat16" for one in stages)
    compiled = "`torch-compile` is recorded in bf16 alone. " if is_lower else ""
    epochs = numbers.count(outlooks.epochs, "epoch")
    training = f"Your training: {epochs} after `prepare`, which loads and compiles, on our host ({outlooks.host})."
    host = f"{compiled}{_pace(outlooks)} {training}"
    untold = ""
    if outlooks.untold:
        names = numbers.listing(f"`{name}`" for name in outlooks.untold)
        untold = f" Too few networks are recorded to give a range for {names}: `advise --measure` times what may win."
    is_guess = " on the GPUs that were timed; here the range is a guess as well" * bool(outlooks.guess and by_model)
    return [f"Nine in ten should lie within the range{is_guess}.{of_model}{untold}", host]


def _pace(outlooks: Outlooks) -> str:
    """Where the data are, and whose host sets the pace of eager and compiled steps."""
    if outlooks.own_eager:
        scaled = "" if outlooks.ignored else " It scales `torch-compile`, whose pace the host sets too."
        return f"Data are on the device, but for your own step.{scaled}"
    differ, least, most = (f"{times:.1f}" for times in (outlooks.eager_differs, *outlooks.dataloader))
    return (
        f"Data are on the device; with a DataLoader, eager steps took {least} to {most} times as long. Our host sets "
        f"the pace of eager and compiled steps, which differed up to {differ}x between its recordings: "
        f"`--measured-eager 2ms` scales them to yours."
    )


def _ends(errors: Sequence[float]) -> str:
    """The least and the largest error: `9% to 14%`, or `9%`."""
    return " to ".join(dict.fromkeys(numbers.rough_share(end(errors)) for end in (min, max)))
