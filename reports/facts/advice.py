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
    errors = [math.log(outlook.high_us / max(outlook.carried_us)) for outlook in (slow, fast)]
    error = math.exp(math.hypot(*errors))
    return Gain(math.sqrt(math.prod(ends)), min(ends) / error, max(ends) * error)


def expected_us(outlook: Outlook) -> float:
    """The measured time of a step in us, else the expected one."""
    return outlook.us if outlook.measured_us is None else outlook.measured_us


def training_s(outlook: Outlook, outlooks: Outlooks) -> float:
    """Seconds of the whole training, loading and compiling included."""
    return outlook.prepare_s + expected_us(outlook) * outlooks.steps / 1e6


def pays_from(eager: Outlook, outlook: Outlook, outlooks: Outlooks) -> int:
    """The epochs from which on a faster stage makes up for the time that it takes to compile."""
    saved_s = (expected_us(eager) - expected_us(outlook)) * outlooks.steps_per_epoch / 1e6
    return max(1, math.ceil((outlook.prepare_s - eager.prepare_s) / saved_s))


def _rounded_up(epochs: int) -> int:
    """In two digits: an estimate has no more."""
    unit = int(10 ** max(0, len(str(epochs)) - 2))
    return -(-epochs // unit) * unit


def deciding(outlooks: Outlooks) -> list[Outlook]:
    """The stages that decide: references, the fastest rung in float32, and faster ones of either in lower precision."""
    stages = {outlook.name: outlook for outlook in outlooks.stages}
    losing = {
        name
        for name, exact in IN_FLOAT32.items()
        if {name, exact} <= stages.keys() and stages[name].us >= stages[exact].us
    }
    kept = [stages[name] for name in REFERENCES if name in stages and name not in losing]
    rungs = [outlook for outlook in outlooks.stages if outlook.group not in ("reference", "cpu")]
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
    """What to do in a sentence, what PyTorch's own ways gain, and what hand-written kernels gain."""
    stages = {outlook.name: outlook for outlook in deciding(outlooks)}
    said = [
        *_of_libraries(stages, outlooks),
        " ".join(_of_pytorch(stages, outlooks)),
        " ".join(_of_kernels(stages, outlooks)),
    ]
    if outlooks.ignored:
        ignored = f"nothing here counts {numbers.listing(outlooks.ignored)}. With plain SGD and no dropout:"
        said.insert(0, f"Measure your model by `python run_ladder.py torch my_model.py`: {ignored}")
    return list(filter(None, said))


def _of_libraries(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """Which library trains fastest, preparation included, as far as it is surely faster than eager mode."""
    eager = stages.get("torch-eager")
    if eager is None:
        return
    long_s, epochs = training_s(eager, outlooks), numbers.count(outlooks.epochs, "epoch")
    sure = [stages[name] for name in REFERENCES if name in stages and gain(eager, stages[name]).is_sure]
    best = min([eager, *sure], key=lambda outlook: training_s(outlook, outlooks))
    took = f"{epochs} should take {numbers.duration(long_s)}"
    if best is eager:
        yield f"Stay in eager PyTorch: {took}, and no library surely takes less."
        return
    short = numbers.duration(training_s(best, outlooks))
    library = "JAX" if best.name.startswith("jax") else "PyTorch"
    way = f"{library} as in `{best.name}` ({numbers.precision(best.precision)})"
    if long_s < SHORT_S:
        yield f"Stay in eager PyTorch, unless you train often: {took}, and {short} in {way}."
    else:
        yield f"Use {way}: {epochs} should take {short}, and {numbers.duration(long_s)} in eager PyTorch."


def _of_pytorch(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """From how many epochs on it pays to compile and to capture an epoch, and what either gains."""
    eager, compiled = stages.get("torch-eager"), stages.get("torch-compile")
    graphs = sorted(filter(None, map(stages.get, ("torch-graph", "torch-graph-amp"))), key=lambda one: -one.us)
    graph = graphs[-1] if graphs else None
    if graph is None or compiled is None or eager is None:
        return
    of_graph, of_compiling = gain(compiled, graph), gain(eager, compiled)
    faster = [compiled, *(one for one in graphs if gain(compiled, one).is_sure)]
    best: list[tuple[str, int]] = []  # ways, each from as many epochs on until the next one
    for outlook in (outlook for outlook in faster if gain(eager, outlook).is_sure):
        least = max(pays_from(stages[slow], outlook, outlooks) for slow in ("torch-eager", *(name for name, _ in best)))
        best = [*((name, epochs) for name, epochs in best if epochs < least), (outlook.name, least)]
    if best:
        pays = ", then ".join(
            f"`{name}` after about {numbers.count(_rounded_up(least), 'epoch')}" for name, least in best
        )
        yield f"Within PyTorch, {pays.replace(' after', ' pays off after', 1)}, counting compilation."
    precision, own = numbers.precision(compiled.precision), numbers.precision(graph.precision)
    if of_graph.is_sure:
        yield (
            f"An epoch in a CUDA graph ({own}, stages/references/torch_graph.py) is {gain(eager, graph).text} as fast "
            f"as eager mode, and {of_graph.text} as fast as compiled steps ({precision})."
        )
        return
    if of_compiling.is_sure:
        yield f"torch.compile (whole step, reduce-overhead, {precision}) is {of_compiling.text} as fast as eager mode."
    else:
        yield "torch.compile may not be faster than eager mode."
    if of_graph.times > WORTH_TRYING:
        yield f"An epoch in a CUDA graph ({own}) may gain another {of_graph.text}: `advise --measure` tells."
    else:
        yield f"An epoch in a CUDA graph ({own}) gains nothing more."


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
        yield f"Hand-written kernels in float32 gain {gained.text} over `{library.name}`, as in `{exact.name}`."
    else:
        may = f"; `{exact.name}` may gain {gained.text}" * (gained.times > WORTH_TRYING)
        yield f"No float32 rung here is surely faster than the best library, `{library.name}`{may}."
    own, precision = numbers.precision(best.precision), numbers.precision(lower.precision)
    if (gained := gain(library, best)).is_sure:
        yield f"In {own}, `{best.name}` gains {gained.text} over `{library.name}`."
    if lower is not exact and (gained := gain(best, lower)).is_sure:
        yield f"In {precision}, `{lower.name}` gains {gained.text} over `{best.name}` in {own}."
    elif best.name in IN_FLOAT32:
        yield f"No rung here of lower precision is surely faster than `{best.name}`."
    if "torch-eager" in stages:
        fastest = min(rungs, key=lambda outlook: training_s(outlook, outlooks))
        yield (
            f"With `{fastest.name}` ({numbers.precision(fastest.precision)}), all of it should take "
            f"{numbers.duration(training_s(fastest, outlooks))}."
        )


def notes(outlooks: Outlooks) -> list[str]:
    """What the range and the model are, how far the model was off, and what the times do not count."""
    stages = deciding(outlooks)
    by_model = [outlook for outlook in stages if not outlook.is_recorded]
    others = "; other times are recorded" if len(by_model) < len(stages) else ""
    and_gpu = " and on another GPU than the model's" if outlooks.guess else ""
    of_model = ""
    if by_model:
        median = _ends([row.median_error for row in by_model])
        most = _ends([row.most_error for row in by_model])
        of_model = (
            f" ~: by a model{others}. On networks left out, median errors are {median}, nine in ten within {most}, "
            f"more farther away{and_gpu}."
        )
    differ, least, most = (f"{times:.1f}" for times in (outlooks.eager_differs, *outlooks.dataloader))
    host = (
        f"The host ({outlooks.host}) sets the pace of eager and compiled steps, which differed up to {differ}x between "
        f"recordings: `--measured-eager 2ms` scales them to yours. Data are on the device; a DataLoader made eager "
        f"steps {least} to {most} times as long."
    )
    untold = ""
    if outlooks.untold:
        names = numbers.listing(f"`{name}`" for name in outlooks.untold)
        untold = f" Too few networks are recorded to tell a range of {names}: `advise --measure` times what may win."
    return [f"Nine in ten should lie within the range.{of_model}{untold}", host]


def _ends(errors: Sequence[float]) -> str:
    """The least and the largest error: `9% to 14%`, or `9%`."""
    return " to ".join(dict.fromkeys(numbers.rough_share(end(errors)) for end in (min, max)))
