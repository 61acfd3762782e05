"""What ladders over a user's model say that differ from the sample in one thing: the lines that they add to it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from msgspec.structs import replace

from ladder.records.torch_run import TorchResults
from reports.facts.torch_rows import Programs
from reports.screens.torch import check_screen, run_screen, rung_screen
from reports.writers.markdown import markdown
from tests.reports.torch_sample import a_process, a_rung, a_torch_run, with_rung, without_rungs

RUN = a_torch_run()
EXPLAINED = ("step-graph", "amp-bf16", "graph-tf32")
PROGRAMS = Programs("a\nb\nc\n", "a\n++x\ny\nz\nc\n")


def torch_runs() -> str:
    """The text of `torch_runs.txt`."""
    screens = {"judged alone": check_screen(RUN)} | {f"explain {name}": rung_screen(RUN, name) for name in EXPLAINED}
    told = ["\n  ".join([title, *_added(run)]) for title, run in _runs().items()]
    told += ["\n  ".join([title, *_parts(markdown(screen))]) for title, screen in screens.items()]
    return "\n\n".join(told) + "\n"


def _parts(text: str) -> list[str]:
    """The rows and the sentences of a document."""
    lines = (" ".join(raw.split()) for raw in text.splitlines())
    return [part for line in lines for part in ([line] if line[:1] == "|" else re.split(r"(?<=[.;]) ", line)) if part]


@cache
def _known() -> Counter[str]:
    return Counter(_parts(markdown(run_screen(RUN, PROGRAMS))))


def _added(run: TorchResults) -> Iterator[str]:
    own = Counter(_parts(markdown(run_screen(run, PROGRAMS))))
    yield from own - _known()
    yield f"lines that it lacks: {(_known() - own).total()}"


def _runs() -> dict[str, TorchResults]:
    def of(*names: str, **changes: int) -> TorchResults:
        return a_torch_run(rungs=[rung for rung in RUN.rungs if rung.name in names], **changes)

    faster = a_rung("no-item", "eager", 1300.0, changes=["eager", "no-item"])
    by_median = a_torch_run(rungs=[RUN.rungs[0], faster])
    by_median = with_rung(by_median, "no-item", processes=[a_process(2300.0), a_process(2610.0)])
    whole, part = "compiled-graph", "compiled-graph-without-fused-optimizer"
    seen = [a_process(2000, spread=1.9), a_process(2400, spread=1.1)]
    calm = a_process(200.0)
    disturbed = replace(calm, measured=replace(calm.measured, disturbed=["the clock fell"]))
    return {
        "1 epoch": a_torch_run(epochs=1),
        "20 epochs": a_torch_run(epochs=20),
        "30 epochs": a_torch_run(epochs=30),
        "nothing pays off in 2 epochs": of("eager", whole, epochs=2),
        "it has paid off after 48 epochs": of("eager", whole, epochs=48),
        "one pays off first": of("eager", "compile", whole, epochs=1),
        "a gain within noise": of("eager", "no-item"),
        "2 epochs and a gain within noise": of("eager", "no-item", epochs=2),
        "a gain": a_torch_run(rungs=[RUN.rungs[0], faster]),
        "a gain by the median alone": by_median,
        "eager mode ranges": with_rung(RUN, "eager", processes=seen),
        "a process was disturbed": with_rung(RUN, "step-graph", processes=[calm, disturbed]),
        "eager mode has no time": without_rungs(RUN, "eager"),
        "nor has the fused optimizer": without_rungs(RUN, "eager", "fused-optimizer"),
        "a less exact rung is as fast": with_rung(
            RUN, "graph-bf16", processes=[a_process(us, 12.0) for us in (100.0, 100.4)]
        ),
        "what a change is worth is within noise": with_rung(
            RUN, part, processes=[a_process(us, 12.0) for us in (100.2, 125.0)]
        ),
        "the best leaves out a change": with_rung(RUN, part, processes=[a_process(101.0, 12.0)] * 2),
        "nothing was timed": without_rungs(RUN, *(rung.name for rung in RUN.rungs if rung.is_timed)),
        "no rung": a_torch_run(rungs=[]),
        "on a CPU": replace(RUN, environment={"cpu": {"model": "a CPU"}}),
        "in another order": a_torch_run(rungs=RUN.rungs[::-1]),
    }
