"""Whether to leave PyTorch for a network, from what each way to train it should take (`ladder.run.outlook`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
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

SENTENCES = {
    "pays": "Counting the time to compile, it pays to change to {ways}.",
    "not_yet": "For {epochs}, {now} is the sure choice in PyTorch: counting the time to compile, it pays to change to "
    "{ways}. Longer training gains more.",
    "way": "`{rung}` from about {epochs} on",
    "then": ", then to ",
    "capture": "Once an epoch is captured in a graph ({own}), it is {eager} as fast as in eager mode, {compiled} as by "
    "compiled steps in {precision}; stages/references/torch_graph.py shows how.",
    "stay": "Stay with PyTorch as it is: torch.compile is not surely faster",
    "use_compiled": "Use torch.compile (whole step, reduce-overhead, {precision}): {eager} as fast as eager mode",
    "may_capture": "{stay}; an epoch in a graph ({own}) may gain another {times}: measure it by `advise --measure`.",
    "no_capture": "{stay}, and an epoch in a graph ({own}) gains nothing.",
    "kernels": "Kernels of your own in float32 gain {times} over `{reference}`, as in `{rung}`.",
    "no_kernels": "No float32 rung here is surely faster than the best library, `{reference}`{may}.",
    "may_kernels": "; `{rung}` may gain {times}",
    "lower_library": "In {precision}, `{reference}` gains {times} over `{other}`.",
    "lower": "In {precision}, `{rung}` gains {times} over `{reference}` in {own}.",
    "no_lower": "No rung here of lower precision is surely faster than `{reference}`.",
    "time": "{epochs} of {images} images, with the time to prepare, should take {eager} in eager mode and {best} at "
    "best, by `{rung}` ({precision}){worth}.",
    "range": "Nine in ten should lie within the range.",
    "model": "~: by a model without `cluster-ahead`, `grid-messages` and `large-batch`, faster if they fit{others}. "
    "On networks left out, median errors are {median}, nine in ten within {most}, more farther away{and_gpu}.",
    "host": "Eager and compiled steps are bound by the host (recorded: {host}): a slower processor takes longer, and "
    "eager steps of one network differed up to {differ}x between recordings. Data are on the device: with a "
    "DataLoader, an eager step took {least} to {most} times as long (torch-dataloader).",
    "short": ": hardly worth a change, unless you train often",
}


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
    """What to do in a sentence, what else there is, and what it saves."""
    stages = {outlook.name: outlook for outlook in deciding(outlooks)}
    said = list(filter(None, (*_of_pytorch(stages, outlooks), *_of_kernels(stages))))
    return [*said[:1], *filter(None, [" ".join(said[1:])]), *_of_time(stages, outlooks)]


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
        ways = [_filled("way", rung=name, epochs=numbers.count(least, "epoch")) for name, least in best]
        now = ["eager mode", *(f"`{name}`" for name, least in best if least <= outlooks.epochs)]
        case = "pays" if len(now) > len(best) else "not_yet"
        yield _filled(
            case, epochs=numbers.count(outlooks.epochs, "epoch"), now=now[-1], ways=SENTENCES["then"].join(ways)
        )
    told = {"precision": numbers.precision(compiled.precision), "own": numbers.precision(graph.precision)}
    if of_graph.is_sure:
        yield _filled("capture", eager=gain(eager, graph).text, compiled=of_graph.text, **told)
        return
    use = _filled("use_compiled", eager=of_compiling.text, **told)
    case = "may_capture" if of_graph.times > WORTH_TRYING else "no_capture"
    yield _filled(case, stay=use if of_compiling.is_sure else _filled("stay"), times=of_graph.text, **told)


def _of_kernels(stages: dict[str, Outlook]) -> Iterator[str]:
    """Whether kernels of one's own are worth it."""
    rungs = [outlook for outlook in stages.values() if outlook.name not in REFERENCES]
    library = _fastest(map(stages.get, IN_FLOAT32.values()))
    best = _fastest([library, *map(stages.get, IN_FLOAT32)])
    if library is None or best is None or not rungs:
        return
    exact, lower = rungs[0], rungs[-1]
    gained = gain(library, exact)
    if gained.is_sure and CLASSES[exact.precision] == "float32":
        yield _filled("kernels", times=gained.text, rung=exact.name, reference=library.name)
    else:
        may = _filled("may_kernels", rung=exact.name, times=gained.text)
        yield _filled("no_kernels", reference=library.name, may=may if gained.times > WORTH_TRYING else "")
    own, precision = numbers.precision(best.precision), numbers.precision(lower.precision)
    if (gained := gain(library, best)).is_sure:
        yield _filled("lower_library", precision=own, reference=best.name, times=gained.text, other=library.name)
    if lower is not exact and (gained := gain(best, lower)).is_sure:
        yield _filled("lower", precision=precision, rung=lower.name, times=gained.text, reference=best.name, own=own)
    elif best.name in IN_FLOAT32:
        yield _filled("no_lower", reference=best.name)


def _of_time(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """What the best of all saves in the training that was asked for."""
    eager = stages.get("torch-eager")
    if eager is None:
        return
    best = min(stages.values(), key=lambda outlook: training_s(outlook, outlooks))
    long_s, short_s = training_s(eager, outlooks), training_s(best, outlooks)
    yield _filled(
        "time",
        epochs=numbers.count(outlooks.epochs, "epoch"),
        images=f"{outlooks.images:,}",
        eager=numbers.duration(long_s),
        best=numbers.duration(short_s),
        rung=best.name,
        precision=numbers.precision(best.precision),
        worth=_filled("short") if long_s < SHORT_S else "",
    )


def notes(outlooks: Outlooks) -> list[str]:
    """What the range and the model are, how far the model was off, and what the times do not count."""
    stages = deciding(outlooks)
    by_model = [outlook for outlook in stages if not outlook.is_recorded]
    others = "; other times are recorded" if len(by_model) < len(stages) else ""
    and_gpu = " and on another GPU than the model's" if outlooks.guess else ""
    errors = {"median": [row.median_error for row in by_model], "most": [row.most_error for row in by_model]}
    shares = {name: [numbers.rough_share(share) for share in sorted(of)] for name, of in errors.items()}
    ranges = {name: " to ".join(dict.fromkeys((of[0], of[-1]))) for name, of in shares.items() if of}
    of_model = _filled("model", others=others, and_gpu=and_gpu, **ranges) if by_model else ""
    differ, least, most = (f"{times:.1f}" for times in (outlooks.eager_differs, *outlooks.dataloader))
    host = _filled("host", host=outlooks.host, differ=differ, least=least, most=most)
    return [" ".join(filter(None, (_filled("range"), of_model))), host]


def _filled(name: str, **given: str) -> str:
    return SENTENCES[name].format(**given)
