"""Whether to leave PyTorch for a network, from what each way to train it should take (`ladder.run.outlook`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ladder.records.exactness import CLASSES
from ladder.records.expectation import CAPTURED, PLAIN, Outlook, Outlooks
from reports.facts import numbers

REFERENCES = {
    "torch-eager": "eager PyTorch, data on the device",
    CAPTURED: "one CUDA graph per step",
    "torch-graph": "torch.compile, one CUDA graph per epoch",
    "torch-graph-amp": "the same in mixed precision",
    "jax-scan": "JAX, one scan per epoch",
    "jax-scan-bf16": "the same in bfloat16",
}
COMPILED = ("torch-graph", "torch-graph-amp")  # of PyTorch
IN_FLOAT32 = {"torch-graph-amp": "torch-graph", "jax-scan-bf16": "jax-scan"}  # a reference decides if it beats this one
WORTH_TRYING = 1.3  # a gain that overlapping ranges may take away again
SHORT_S = 60.0  # a training of less in eager mode is not worth a change
FUSED = ("SGD", "Adam", "AdamW")  # optimizers of PyTorch that take `fused=True` on a GPU
CAPTURABLE = ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adadelta", "ASGD", "RMSprop", "Rprop")
MOST_EXAMPLES = 3
CHANGES = (
    "Keep `x` and `y` on the device ({megabytes} MB): `x[rows]` is a batch. Augment there.",
    "Call no `.item()` or `print(loss)` in the loop: add up `loss.detach()` instead.",
    "{optimizer}",
    "Record one step by `torch.cuda.graph(graph)`, and replay it for each batch: {path} shows how.",
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
    ends = zip(outlook.prepare_ends_s, _range(outlook), strict=True)
    low_us, high_us = (prepare_s * 1e6 + us * outlooks.steps for prepare_s, us in ends)
    us = outlook.prepare_s * 1e6 + expected_us(outlook) * outlooks.steps
    return msgspec.structs.replace(outlook, us=us, low_us=low_us, high_us=high_us, measured_us=None)


def training_s(outlook: Outlook, outlooks: Outlooks) -> float:
    """Seconds of the whole training, loading and compiling included."""
    return whole(outlook, outlooks).us / 1e6


def training_range(outlook: Outlook, outlooks: Outlooks) -> str:
    """The range of the whole training, `8.9-19 s`."""
    total = whole(outlook, outlooks)
    return numbers.duration_range(total.low_us / 1e6, total.high_us / 1e6)


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
    told = {"deciding": names, "verdict": [*verdict(outlooks), *reasons(outlooks)], "changes": changes(outlooks)}
    return {**_rounded({**facts, "gains": gains}), **guess, **told}


def _rounded(value: Any) -> Any:
    """Plain data whose fractions have four significant digits."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def verdict(outlooks: Outlooks) -> list[str]:
    """What the whole training takes and the changes save, how sure that is, then which library to use."""
    stages = {outlook.name: outlook for outlook in deciding(outlooks)}
    told = [" ".join(_of_eager(stages, outlooks)), _confidence(stages, outlooks), *_of_libraries(stages, outlooks)]
    return list(filter(None, told[:3]))


def reasons(outlooks: Outlooks) -> list[str]:
    """What the rows are, what the user's own step tells, when other ways pay off, and what our kernels gain."""
    stages = {outlook.name: outlook for outlook in deciding(outlooks)}
    others = [*_of_libraries(stages, outlooks)][1:]
    rows = [f"{told}." for told in _of_rows(stages, outlooks) if told]
    return [*rows, *others, *_of_kernels(stages, outlooks)]


def changes(outlooks: Outlooks) -> list[str]:
    """What to change in the usual loop, in this order; nothing where that should save little."""
    if not _may_capture({outlook.name: outlook for outlook in deciding(outlooks)}, outlooks):
        return []
    name = outlooks.optimizer
    takes = [f"{one}=True" for one, names in (("fused", FUSED), ("capturable", CAPTURABLE)) if name in names]
    use = f"Use `{name}(params, {', '.join(takes)})`."
    if not takes:
        use = f"`{name}` takes neither `fused` nor `capturable`: `run_ladder.py torch` checks whether a graph is right."
    told = {
        "megabytes": f"{outlooks.images * int(outlooks.network.partition('-')[0]) * 4 / 1e6:,.0f}",
        "optimizer": use,
        "path": f"{outlooks.own_model.path}/train_fast.py" if outlooks.own_model else "docs/your-model.md",
    }
    return [change.format(**told) for change in CHANGES]


def examples(outlooks: Outlooks) -> str:
    """What the changes gained in recorded models; empty where none are advised."""
    models = outlooks.own_models[:MOST_EXAMPLES]
    if not models or not changes(outlooks):
        return ""
    gained = [
        (one.loop_us / one.resident_us, one.resident_us / one.fused_us, one.fused_us / one.graph_us, one.times)
        for one in models
    ]
    data, fused, graph, training = (
        f"{'-'.join(dict.fromkeys(map(numbers.rough, (min(times), max(times)))))}x"
        for times in zip(*gained, strict=True)
    )
    names = numbers.listing(f"`{one.name}`" for one in models)
    return (
        f"In our examples {names} (docs/your-model.md, on a slow host) the first two gained {data} per step, "
        f"`fused=True` {fused} and the graph {graph}: {training} in a whole training."
    )


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
    epochs, took = numbers.count(outlooks.epochs, "epoch"), _took(eager, outlooks)
    loader_s = [eager.prepare_s + eager.us * times * outlooks.steps / 1e6 for times in outlooks.dataloader]
    loader = numbers.duration_range(*loader_s)
    if outlooks.own_eager:
        us = numbers.microseconds(expected_us(eager))
        yield f"At {us} us per step, as measured, {epochs} take {took}, loading PyTorch included."
    elif not _captures(stages, outlooks):
        yield f"{epochs} should take {took} in eager PyTorch with data on the device, about {loader} with a DataLoader."
    if captured is None:
        return
    expected_s, least_s, most_s = _saved_s(eager, captured, outlooks)
    if _captures(stages, outlooks):
        is_short = expected_s < SHORT_S
        often = f", or {numbers.rough_duration(100 * expected_s)} in 100 such trainings" * is_short
        saved = numbers.duration_range(*(total_s - training_s(captured, outlooks) for total_s in loader_s))
        of_loader = (
            f" about {saved} of the {loader} that {epochs} take in eager PyTorch with a DataLoader. Of that, one CUDA "
            f"graph per step alone should save"
        )
        yield (
            f"{'If you train often, m' if is_short else 'M'}ake the changes below: they should save"
            f"{of_loader * (not outlooks.own_eager)} {numbers.duration(expected_s)} "
            f"({numbers.duration_range(least_s, most_s)}){often}."
        )
    elif _may_capture(stages, outlooks):
        may = f"The graph may save {numbers.duration(expected_s)} more, or nothing: time it."
        yield f"Make the first three changes below in any case. {may}"
    else:
        yield "Stay in eager mode: one CUDA graph per step should save little, if anything."


def _confidence(stages: dict[str, Outlook], outlooks: Outlooks) -> str:
    """How sure the verdict is, and that a faster host gains less: it sets the time of eager mode."""
    eager, captured = stages.get("torch-eager"), stages.get(CAPTURED)
    captures = captured is not None and _captures(stages, outlooks)
    if outlooks.own_eager:
        told = "Confidence: high in a gain, as your step is measured. Start-up, common to both, cancels."
        return told * captures
    if eager is None:
        return ""
    here = "here the recorded one" if eager.is_recorded else f"here {outlooks.launch_us:g} us per launch"
    told = f"low, as the host sets eager mode's pace ({here}): on a faster one a graph saves less"
    if captures and captured:
        half = msgspec.structs.replace(eager, us=max(eager.us / 2, captured.us), measured_us=None)
        less = numbers.duration(max(_saved_s(half, captured, outlooks)[0], 0.0))
        told = f"high in a gain, low in its size: on a host twice as fast ({here}) the graph saves {less}"
    return f"Confidence: {told}. Time your step: `--measured-eager 2ms`."


def _of_rows(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """What the rows are, what the user's own step tells beside them, and which compile in vain."""
    yield "; ".join(f"`{name}`: {REFERENCES[name]}" for name in stages if name in REFERENCES and name not in IN_FLOAT32)
    if outlooks.ignored:
        more = f"; the range of `{CAPTURED}` allows for more" * (outlooks.optimizer in FUSED)
        yield f"Both are for plain SGD, without {numbers.listing(outlooks.ignored)}{more}"
        yield "JAX and our own CUDA kernels train by plain SGD here, and are left out"
    if eager := stages.get("torch-eager"):
        yield _of_own_step(eager, outlooks) * outlooks.own_eager
        least_s, compiled = whole(eager, outlooks).us, [stages[name] for name in COMPILED if name in stages]
        in_vain = [f"`{one.name}`" for one in compiled if whole(one, outlooks).us > least_s]
        epochs, names = numbers.count(outlooks.epochs, "epoch"), numbers.listing(in_vain or [""])
        yield f"For {epochs}, compiling {names} costs more than it saves" * bool(in_vain)


def _of_own_step(eager: Outlook, outlooks: Outlooks) -> str:
    """What the user's own step tells beside the expected one."""
    us, beside = expected_us(eager), numbers.listing(["loading", "`.item()`", *outlooks.ignored])
    row = f"`torch-eager` on a host with {outlooks.launch_us:g} us per launch"
    if us <= eager.low_us:
        return f"Your step takes less than {row}"
    if us > eager.high_us:
        return f"Your step takes longer than {row}: {beside} may be why. Begin with the data"
    return f"Your step may take no longer than {row}, so {beside} may cost nothing. Move the data first; time it again"


def _of_libraries(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """Which library takes least in all; then which may take as little, and when other ways in PyTorch pay off.

    Of ways that should take about as long it is the one that changes least: the first of `REFERENCES`. Slower ones
    whose ranges overlap with its range are named.
    """
    if "torch-eager" not in stages:
        return
    totals = {name: whole(stages[name], outlooks) for name in REFERENCES if name in stages}
    base = totals[CAPTURED if _captures(stages, outlooks) else "torch-eager"]
    beaten, use = ("the changes below", "Better, use") if base.name == CAPTURED else ("eager PyTorch", "Use")
    others = [total for name, total in totals.items() if name not in (CAPTURED, "torch-eager")]
    if not others:
        return
    if not (sure := [total for total in others if gain(base, total).is_sure]):
        quickest = min(others, key=expected_us)
        may = f", or time `{quickest.name}`, which may take {_took(stages[quickest.name], outlooks)} in all"
        stay = f"Stay with PyTorch{may * (gain(base, quickest).times > WORTH_TRYING)}"
        later = _later(stages[base.name], [stages[other.name] for other in others], outlooks)
        epochs, then = numbers.count(outlooks.epochs, "epoch"), f" F{later[1:]}" * bool(later)
        yield f"{stay}: for {epochs} no other library is certain to beat {beaten}.{then}"
        return
    fastest = min(sure, key=expected_us)
    ties = [total for total in others if not gain(total, fastest).is_sure]
    best = next(total for total in ties if total in sure and gain(total, fastest).times < WORTH_TRYING)
    library = "JAX" if best.name.startswith("jax") else "PyTorch"
    gained, took = gain(base, best).text, _took(stages[best.name], outlooks)
    yield f"{use} {library} as in {_named(best)}, {took}: in all {gained} as fast as {beaten}."
    if near := [f"`{one.name}`" for one in ties if one is not best]:
        first = "time them first" if near[1:] else "time it first"
        yield f"{numbers.listing(near)} may take no longer, as the ranges overlap: {first}."
    if later := _later(stages[base.name], [stages[name] for name in stages if name in COMPILED], outlooks):
        yield f"Within PyTorch, {later}"


def _named(outlook: Outlook) -> str:
    """`torch-graph-amp` (bf16)."""
    return f"`{outlook.name}` ({numbers.precision(outlook.precision)})"


def _later(best: Outlook, others: list[Outlook], outlooks: Outlooks) -> str:
    """From how many more epochs on which of these takes least, where that is sure per step; empty if none does."""
    told = list[str]()
    while faster := [
        (pays_from(best, other, outlooks), other.us, other) for other in others if gain(best, other).is_sure
    ]:
        least, _, best = min(faster, key=lambda one: one[:2])
        if least > outlooks.epochs:
            told.append(f"from about {numbers.count(_rounded_up(least), 'epoch')} on {_named(best)}")
    return f"{', and '.join(told)} should take less, compilation included." * bool(told)


def _of_kernels(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """Whether kernels of one's own are worth it."""
    rungs = [outlook for outlook in stages.values() if outlook.name not in REFERENCES]
    library = _fastest(map(stages.get, IN_FLOAT32.values()))
    best = _fastest([library, *map(stages.get, IN_FLOAT32)])
    if library is None or best is None or not rungs:
        return
    over = [library if CLASSES[rung.precision] == "float32" else best for rung in rungs]
    gains = [(gain(rival, rung), f"`{rival.name}`") for rival, rung in zip(over, rungs, strict=True)]
    said = [f"{gained.text} as fast as {rival}" for gained, rival in gains if gained.is_sure]
    if unsure := [rival for gained, rival in gains if not gained.is_sure]:
        said.append(f"perhaps no faster than {numbers.listing(unsure)}")
    names, are = numbers.listing(f"`{rung.name}`" for rung in rungs), "are" if rungs[1:] else "is"
    more = f" (`advise --measure` times {len(outlooks.untold)} more, which have no range)" * bool(outlooks.untold)
    kernels = f"{are} our own CUDA kernel{'s' * len(rungs[1:])} for plain SGD{more}"
    yield f"{names} {kernels}: per step, {numbers.listing(said)}."
    if "torch-eager" in stages:
        fastest = min(rungs, key=lambda outlook: training_s(outlook, outlooks))
        rival = min((stages[name] for name in REFERENCES if name in stages), key=lambda one: training_s(one, outlooks))
        gained = gain(whole(rival, outlooks), whole(fastest, outlooks))
        compared = f"should be {gained.text} as fast as" if gained.is_sure else "may take no less than"
        yield f"In all, `{fastest.name}` {compared} `{rival.name}`."


def notes(outlooks: Outlooks) -> list[str]:
    """What an estimate is, how a captured step's time is estimated, and what is recorded nearby."""
    said, by_model = list[str](), [one for one in deciding(outlooks) if not one.is_recorded and one.measured_us is None]
    if by_model:
        said.append("~ marks estimates; nine in ten should lie in their range.")
    if CAPTURED in {one.name for one in by_model} and outlooks.layer_us is not None:
        more = f"{outlooks.layer_us:.0f} us per layer, from one recording (`{PLAIN}`)"
        said.append(f"`{CAPTURED}` takes what `torch-graph` does and {more}; two others check it.")
    for near in outlooks.nearest[:1]:
        eager = f", eager {numbers.microseconds(near.eager_us)} us" if near.eager_us else ""
        if near.path not in outlooks.guess:
            said.append(f"Nearest recorded run: {near.network}, batch {near.batch_size}{eager}: {near.path}.")
    return said
