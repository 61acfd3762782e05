"""Whether to leave PyTorch for a network, from what each way to train it should take (`ladder.run.outlook`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ladder.records.exactness import CLASSES
from ladder.records.expectation import CAPTURED, CHECKED, Outlook, Outlooks
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
DOUBTFUL = 5.0  # times beyond the range of eager mode, from which on a measured step needs an explanation
SHORT_S = 60.0  # a training of less in eager mode is not worth a change
FUSED = ("SGD", "Adam", "AdamW")  # optimizers of PyTorch that take `fused=True` on a GPU
CAPTURABLE = ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adadelta", "ASGD", "RMSprop", "Rprop")
TIME_IT = "Time 100 steps of your loop, synchronise, and pass one, such as `--measured-eager 2ms`"
CHANGES = (
    "Keep `x`, `y` on the device ({megabytes} MB): `x[rows]` is a batch. Augment on the device.",
    "Call no `.item()` or `print(loss)` in the loop: add up `loss.detach()` instead.",
    "{optimizer}",
    "Record one step by `torch.cuda.graph(graph)`, and replay it (one batch size, no branches, rate a tensor): {path}.",
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


def pays_from(slow: Outlook, fast: Outlook, outlooks: Outlooks) -> tuple[int, int]:
    """The epochs from which on a faster stage makes up for its compiling; then as the ranges have it at worst."""
    expected = expected_us(slow) - expected_us(fast), fast.prepare_s - slow.prepare_s
    worst = _range(slow)[0] - _range(fast)[1], fast.prepare_ends_s[1] - slow.prepare_ends_s[0]
    likely, surely = (math.ceil(s * 1e6 / us / outlooks.steps_per_epoch) for us, s in (expected, worst))
    return max(1, likely), max(1, surely)


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
    """What the whole training takes and the changes save, how sure that is, then which library to use, if any."""
    stages = {outlook.name: outlook for outlook in deciding(outlooks)}
    library = next(_of_libraries(stages, outlooks), "")
    told = [" ".join(_of_eager(stages, outlooks)), _sureness(stages, outlooks), library, _of_kernels(stages, outlooks)]
    return list(filter(None, told))


def reasons(outlooks: Outlooks) -> list[str]:
    """What the rows are, what the user's own step tells, and when other ways pay off."""
    stages = {outlook.name: outlook for outlook in deciding(outlooks)}
    others = [*_of_libraries(stages, outlooks)][1:]
    rows = [f"{told}." for told in _of_rows(stages, outlooks) if told]
    return [*rows, *others]


def changes(outlooks: Outlooks) -> list[str]:
    """What to change in the usual loop, in this order; nothing where that should save little."""
    if not _may_capture({outlook.name: outlook for outlook in deciding(outlooks)}, outlooks):
        return []
    name = outlooks.optimizer
    takes = [f"{one}=True" for one, names in (("fused", FUSED), ("capturable", CAPTURABLE)) if name in names]
    use = f"{'Without a graph, use' if takes == ['fused=True'] else 'Use'} `{name}(params, {', '.join(takes)})`."
    if not takes:
        use = f"`{name}` takes neither `fused` nor `capturable`: `run_ladder.py torch` checks whether a graph is right."
    told = {
        "megabytes": f"{outlooks.images * int(outlooks.network.partition('-')[0]) * 4 / 1e6:,.0f}",
        "optimizer": use,
        "path": f"{outlooks.own_model.path}/train_fast.py" if outlooks.own_model else "docs/your-model.md",
    }
    return [change.format(**told) for change in CHANGES]


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
    if outlooks.own_eager:
        us = numbers.microseconds(expected_us(eager))
        doubt = f"{_doubt(outlooks)} " * bool(_doubt(outlooks))
        yield f"{doubt}At {us} us per step, as measured, {epochs} take {took}, loading PyTorch included."
    else:
        loaded = "-".join(map(numbers.rough, outlooks.dataloader))
        yield (
            f"{_host(eager, outlooks)}{epochs} should take {took} in eager PyTorch with data on the device, and a step "
            f"{loaded} times as long with a DataLoader."
        )
    yield from _of_ignored(outlooks)
    if captured is None:
        return
    expected_s, least_s, most_s = _saved_s(eager, captured, outlooks)
    if _captures(stages, outlooks):
        is_short = expected_s < SHORT_S
        shown_s = float(numbers.seconds(min(expected_s, SHORT_S)).removesuffix(" s"))
        often = f", or {numbers.rough_duration(100 * shown_s)} in 100 such trainings" * is_short
        yield (
            f"{'If you train often, m' if is_short else 'M'}ake the changes below: "
            f"{'they' if outlooks.own_eager else 'one CUDA graph per step alone'} should save "
            f"{numbers.duration(expected_s)} ({numbers.duration_range(least_s, most_s)}){often}."
        )
    elif _may_capture(stages, outlooks):
        yield "Make the first two changes below in any case."
        yield f"The graph {_saves(stages, outlooks)}, as the ranges overlap: measure it first."
    else:
        yield "Stay in eager mode: one CUDA graph per step should save little, if anything."


def _of_ignored(outlooks: Outlooks) -> Iterator[str]:
    """Which options the estimates leave out, and how recorded models that have such compare with their estimates."""
    if not outlooks.ignored:
        return
    models = [model for model in outlooks.own_models if model.name in CHECKED]
    those = numbers.listing(f"`{model.name}` ({model.optimizer}{', dropout' * model.has_dropout})" for model in models)
    left_out, compared = "Estimates leave", f"the recorded models {those} gain more than estimated"
    if outlooks.own_eager:
        left_out, compared = "The graph's estimate leaves", f"for the recorded models {those} it is within a tenth"
    yield f"{left_out} out {numbers.listing(outlooks.ignored)}{f'; {compared}' * bool(models)}."


def _host(eager: Outlook, outlooks: Outlooks) -> str:
    """The host whose launches the time of eager mode has, to begin a sentence; empty if the user measured it."""
    if eager.measured_us is not None:
        return ""
    if outlooks.own_launch:
        return f"On a host with {outlooks.launch_us:g} us per launch, "
    return f"On a slow cloud host{f' ({outlooks.launch_us:g} us per launch)' * (not eager.is_recorded)}, "


def _saves(stages: dict[str, Outlook], outlooks: Outlooks) -> str:
    """What a captured step should save, in the same words for every host: `may save 3.9 s, or nothing`."""
    expected_s = _saved_s(stages["torch-eager"], stages[CAPTURED], outlooks)[0]
    if expected_s <= 0:
        return "should save little, if anything"
    took = numbers.duration(expected_s)
    return f"should save {took}" if _captures(stages, outlooks) else f"may save {took}, or nothing"


def _doubt(outlooks: Outlooks) -> str:
    """That the user's own step is too far from the expected one to be believed; empty if it is not."""
    eager = {outlook.name: outlook for outlook in outlooks.stages}.get("torch-eager")
    if not outlooks.own_eager or eager is None:
        return ""
    us, estimate_us = expected_us(eager), float(f"{eager.us:.2g}")
    own, estimate = f"Your {numbers.rough(us)} us is", f"our estimate of {numbers.rough(estimate_us)} us"
    if us < eager.low_us / DOUBTFUL:
        return f"{own} {numbers.rough(estimate_us / us)} times below {estimate}: was the GPU synchronised?"
    if us > eager.high_us * DOUBTFUL:
        return f"{own} {numbers.rough(us / estimate_us)} times {estimate}: look for the cause (data loading?) first."
    return ""


HOST_PACES = "The host sets eager mode's pace: on a slower one a graph saves more."


def _sureness(stages: dict[str, Outlook], outlooks: Outlooks) -> str:
    """How sure a gain is: the host sets the time of eager mode, so one is likely that a faster host has as well."""
    eager, captured = stages.get("torch-eager"), stages.get(CAPTURED)
    if eager is None:
        return ""
    if outlooks.own_eager:
        told = "likely, as your step is measured; start-up, common to both, cancels"
        doubtful = "uncertain, as your step and our estimate contradict each other"
        is_told = captured is not None and (_doubt(outlooks) or _captures(stages, outlooks))
        return f"A gain is {doubtful if _doubt(outlooks) else told}." * bool(is_told)
    if outlooks.own_launch or eager.measured_us is not None:
        return f"{TIME_IT}."
    is_limit = captured is not None and eager.us <= captured.us
    told = "The GPU is the limit; a graph cannot help." if is_limit else HOST_PACES
    if _may_capture(stages, outlooks):
        us, low_us, high_us = eager.us / 2, eager.low_us / 2, eager.high_us / 2
        faster = {**stages, "torch-eager": msgspec.structs.replace(eager, us=us, low_us=low_us, high_us=high_us)}
        gain_is = "likely" if _captures(faster, outlooks) else "uncertain"
        saves = _saves(faster, outlooks)
        told = f"Elsewhere a gain is {gain_is}: on a host twice as fast, say a desktop, the graph {saves}."
    return f"{told} {TIME_IT}, or `--launch` (`run_ladder.py limits`)."


def _of_rows(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """What the rows are, what the user's own step tells beside them."""
    named = [name for name in stages if name in REFERENCES and name not in ("torch-eager", *IN_FLOAT32)]
    yield "; ".join(f"`{name}`: {REFERENCES[name]}" for name in named)
    if outlooks.ignored:
        yield "JAX and our own CUDA kernels train by plain SGD here, and are left out"
    if eager := stages.get("torch-eager"):
        yield _of_own_step(eager, outlooks) * (outlooks.own_eager and not _doubt(outlooks))


def _of_own_step(eager: Outlook, outlooks: Outlooks) -> str:
    """What the user's own step tells beside the expected one."""
    us, beside = expected_us(eager), numbers.listing(["loading", "`.item()`", *outlooks.ignored])
    expected = f"{numbers.rough(eager.low_us)}-{numbers.rough(eager.high_us)} us"
    if is_below(eager):
        return f"Your step takes less than eager mode should ({expected}): your host may be faster than ours"
    if us > eager.high_us:
        return f"Your step takes longer than eager mode alone should: {beside} may be why. Begin with the data"
    alone = f"Your step is within what eager mode alone may take ({expected})"
    return f"{alone}, so {beside} may cost nothing. Move the data first, then time it again"


def is_below(eager: Outlook) -> bool:
    """Whether a measured step takes less than the least that was expected, which it thereby refutes."""
    return eager.measured_us is not None and eager.measured_us <= eager.low_us


def _of_libraries(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """Which library takes least in all; then which may take as little, and when other ways in PyTorch pay off.

    Of ways that should take about as long it is the one that changes least: the first of `REFERENCES`. Slower ones
    whose ranges overlap with its range are named.
    """
    if "torch-eager" not in stages:
        return
    totals = {name: whole(stages[name], outlooks) for name in REFERENCES if name in stages}
    base = totals[CAPTURED if _may_capture(stages, outlooks) else "torch-eager"]
    beaten, use = ("the changes below", "Better, use") if base.name == CAPTURED else ("eager PyTorch", "Use")
    others = [total for name, total in totals.items() if name not in (CAPTURED, "torch-eager")]
    if not others:
        return
    if not (sure := [total for total in others if gain(base, total).is_sure]):
        quickest = min(others, key=expected_us)
        later = _later(stages[base.name], [stages[one.name] for one in others], outlooks)
        told = f"Stay with PyTorch: no other library clearly beats {beaten}"
        if expected_us(quickest) < expected_us(base):
            took, than = (numbers.duration(training_s(stages[one.name], outlooks)) for one in (quickest, base))
            ours = "PyTorch" if quickest.name.startswith("jax") else f"`{base.name}`"
            is_close = gain(base, quickest).times < WORTH_TRYING
            stay, but = ("", "too close to call") if is_close else (", or time the other", "but the ranges overlap")
            told = (
                f"Stay with {ours}{stay}: `{quickest.name}` should take {took} against {than} for `{base.name}`, {but}"
            )
        yield f"{told}.{f' {later}' * bool(later)}"
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
    """From how many more epochs on which of these takes less, as expected and at worst, where a step surely does."""
    told = list[str]()
    while faster := [
        (*pays_from(best, other, outlooks), other.us, other) for other in others if gain(best, other).is_sure
    ]:
        least, surely, _, best = min(faster, key=lambda one: (one[0], one[2]))
        epochs, sure = numbers.count(_rounded_up(least), "epoch"), _rounded_up(surely)
        if least > outlooks.epochs:
            told.append(f"`{best.name}` should take less from about {epochs} on, at worst from {sure:,}.")
        elif surely > outlooks.epochs:
            told.append(f"At worst, `{best.name}` takes less from about {numbers.count(sure, 'epoch')} on.")
    return " ".join(told)


def _of_kernels(stages: dict[str, Outlook], outlooks: Outlooks) -> str:
    """Whether a kernel of ours takes less in all than the best reference, and what it gains per step."""
    rungs = [outlook for outlook in stages.values() if outlook.name not in REFERENCES]
    rivals = [stages[name] for name in REFERENCES if name in stages]
    if not rungs or "torch-eager" not in stages:
        return ""
    rung, rival = (min(each, key=lambda one: training_s(one, outlooks)) for each in (rungs, rivals))
    gained = gain(whole(rival, outlooks), whole(rung, outlooks))
    took, than = (numbers.duration(training_s(one, outlooks)) for one in (rung, rival))
    told = f"{took} against {than} for `{rival.name}`: the ranges overlap"
    if gained.is_sure:
        told = f"{took}, {gained.text} as fast as `{rival.name}`"
    elif gained.times <= 1:
        told = f"no less than `{rival.name}`"
    more = f" `advise --measure` times {len(outlooks.untold)} more." * bool(outlooks.untold)
    only = "Our own CUDA kernels are for learning, and train by plain SGD alone"
    return f"{only}. In all, `{rung.name}` should take {told}.{_per_step(rung, stages)}{more}"


def _per_step(rung: Outlook, stages: dict[str, Outlook]) -> str:
    """What a step of a rung surely gains over the fastest compiled one of at least its precision, as a sentence."""
    names = IN_FLOAT32.values() if CLASSES[rung.precision] == "float32" else [*IN_FLOAT32.values(), *IN_FLOAT32]
    library = _fastest(map(stages.get, names))
    if library is None or not (gained := gain(library, rung)).is_sure:
        return ""
    return f" Its step alone is {gained.text} as fast as that of `{library.name}`."


def notes(outlooks: Outlooks) -> list[str]:
    """What an estimate and a range are, and what is recorded nearby."""
    said, by_model = list[str](), [one for one in deciding(outlooks) if not one.is_recorded and one.measured_us is None]
    if by_model:
        said.append("~ marks estimates.")
    if CAPTURED in {one.name for one in by_model}:
        said.append(f"Nine in ten times should lie in a range; `{CAPTURED}`'s is judged, not tested (docs/method.md).")
    if outlooks.gpu != outlooks.recorded_gpu:
        said.append(f"Start-up was timed beside an {outlooks.recorded_gpu}.")
    for near in outlooks.nearest[:1]:
        if near.path not in outlooks.guess:
            said.append(f"Nearest recording: {near.network}, batch {near.batch_size}, {near.path}.")
    return said
