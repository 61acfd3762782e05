"""Whether to leave PyTorch for a network, from what each way to train it should take (`ladder.run.outlook`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ladder.records.exactness import CLASSES
from ladder.records.outlook import Outlook, Outlooks
from reports.facts import numbers

REFERENCES = {
    "torch-eager": "PyTorch, eager",
    "torch-compile": "PyTorch, compiled, mixed precision",
    "torch-graph": "PyTorch, compiled, an epoch in a graph",
    "jax-scan": "JAX, an epoch in a scan",
}
NOISE = 1.05  # a gain below it is none
WORTH_TRYING = 1.3  # a gain that errors may take away again
SHORT_S = 60.0  # a training of less in eager mode is not worth a change


# In one place, since the site's page fills them in as well.
SENTENCES = {
    "capture": "Capture your epoch in a graph: {eager} as fast as eager mode, {compiled} as compiled steps; "
    "stages/references/torch_graph.py shows how.",
    "stay": "Stay with PyTorch as it is: torch.compile is not surely faster",
    "stay_compiled": "Stay with torch.compile, {eager} as fast as eager mode",
    "may_capture": "{stay}; an epoch in a graph may gain another {times}: measure it by `advise --measure`.",
    "no_capture": "{stay}, and an epoch in a graph gains nothing.",
    "kernels": "Kernels of your own gain another {times}, as in `{rung}`.",
    "no_kernels": "No float32 rung is surely faster than `{reference}`{may}.",
    "may_kernels": "; `{rung}` may gain {times}",
    "lower": "In {precision}, `{rung}` gains {times}.",
    "time": "{epochs} of {images} images should take {eager} in eager mode and {best} at best{worth}.",
    "short": ": hardly worth a change, unless you train often",
}


class Gain(NamedTuple):
    """How many times as fast one stage should be as another, and what nine in ten should at least be."""

    times: float
    least: float

    @property
    def is_sure(self) -> bool:
        """Whether it exceeds the errors of both."""
        return self.least > NOISE

    @property
    def text(self) -> str:
        """`14.1x`, or `about 1.8x` where the errors of both allow for none."""
        return numbers.ratio(self.times) if self.is_sure else f"about {numbers.ratio(self.times)}"


def gain(slow: Outlook, fast: Outlook) -> Gain:
    """The gain of one stage over another; both are carried to another GPU alike, and their errors are independent."""
    if slow.measured_us and fast.measured_us:
        times = slow.measured_us / fast.measured_us
        return Gain(times, times)
    ends = [a / b for a, b in zip(slow.carried_us, fast.carried_us, strict=True)]
    errors = [math.log(one.high_us / max(one.carried_us)) for one in (slow, fast)]
    return Gain(math.sqrt(math.prod(ends)), min(ends) * math.exp(-math.hypot(*errors)))


def expected_us(one: Outlook) -> float:
    """The measured time of a step in us, else the expected one."""
    return one.us if one.measured_us is None else one.measured_us


def training_s(one: Outlook, outlooks: Outlooks) -> float:
    """Seconds of the whole training, without set-up and compiling."""
    return expected_us(one) * outlooks.steps / 1e6


def deciding(outlooks: Outlooks) -> list[Outlook]:
    """The stages that decide: four references, the fastest rung in float32, and a faster one of lower precision."""
    stages = {one.name: one for one in outlooks.stages}
    found = [stages[name] for name in REFERENCES if name in stages]
    rungs = [one for one in outlooks.stages if one.group not in ("reference", "cpu")]
    exact = _fastest(one for one in rungs if CLASSES[one.precision] == "float32")
    lower = _fastest(one for one in rungs if CLASSES[one.precision] != "float32")
    found += [exact] if exact else []
    if lower and (not exact or lower.us < exact.us):
        found.append(lower)
    return found


def _fastest(stages: Iterable[Outlook]) -> Outlook | None:
    return min(stages, key=lambda one: one.us, default=None)


def advice_facts(outlooks: Outlooks) -> dict[str, Any]:
    """The outlook as plain data for JSON, with the verdict and the names of the stages that decide."""
    names = [one.name for one in deciding(outlooks)]
    return {**msgspec.to_builtins(outlooks), "deciding": names, "verdict": verdict(outlooks)}


def verdict(outlooks: Outlooks) -> list[str]:
    """What to do, in a sentence or two, and what it saves."""
    stages = {one.name: one for one in deciding(outlooks)}
    return [" ".join(filter(None, (_of_pytorch(stages), *_of_kernels(stages)))), *_of_time(stages, outlooks)]


def _of_pytorch(stages: dict[str, Outlook]) -> str:
    """Whether to compile, and whether to capture an epoch."""
    eager, compiled, graph = (stages.get(name) for name in ("torch-eager", "torch-compile", "torch-graph"))
    if graph is None or compiled is None or eager is None:
        return ""
    of_graph, of_compiling = gain(compiled, graph), gain(eager, compiled)
    if of_graph.is_sure:
        return _filled("capture", eager=gain(eager, graph).text, compiled=of_graph.text)
    stay = _filled("stay_compiled", eager=of_compiling.text) if of_compiling.is_sure else _filled("stay")
    if of_graph.times > WORTH_TRYING:
        return _filled("may_capture", stay=stay, times=numbers.ratio(of_graph.times))
    return _filled("no_capture", stay=stay)


def _of_kernels(stages: dict[str, Outlook]) -> Iterator[str]:
    """Whether kernels of one's own are worth it."""
    known = [stages[name] for name in ("torch-graph", "jax-scan") if name in stages]
    best, rungs = _fastest(known), [one for one in stages.values() if one.name not in REFERENCES]
    if best is None or not rungs:
        return
    exact, lower = rungs[0], rungs[-1]
    found = gain(best, exact)
    if found.is_sure and CLASSES[exact.precision] == "float32":
        yield _filled("kernels", times=found.text, rung=exact.name)
    else:
        may = _filled("may_kernels", rung=exact.name, times=numbers.ratio(found.times))
        yield _filled("no_kernels", reference=best.name, may=may if found.times > WORTH_TRYING else "")
    if lower is not exact and (found := gain(best, lower)).is_sure:
        yield _filled("lower", precision=numbers.precision(lower.precision), rung=lower.name, times=found.text)


def _of_time(stages: dict[str, Outlook], outlooks: Outlooks) -> Iterator[str]:
    """What the best of all saves in the training that was asked for."""
    eager, best = stages.get("torch-eager"), _fastest(stages.values())
    if eager is None or best is None:
        return
    long_s, short_s = training_s(eager, outlooks), training_s(best, outlooks)
    yield _filled(
        "time",
        epochs=numbers.count(outlooks.epochs, "epoch"),
        images=f"{outlooks.images:,}",
        eager=numbers.duration(long_s),
        best=numbers.duration(short_s),
        worth=_filled("short") if long_s < SHORT_S else "",
    )


def _filled(name: str, **given: str) -> str:
    return SENTENCES[name].format(**given)
