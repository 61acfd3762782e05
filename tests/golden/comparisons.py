"""What `compare` says of pairs of runs that differ in one thing: a line a stage, and the exit codes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from ladder.records.run import Process, Results, StageCode
from reports.facts.many_runs import compare_machines
from reports.facts.two_runs import CannotCompareError, StageVerdict, compare
from reports.screens.compare import conclusion, orders
from tests.reports import recorded, sample
from tests.reports.recorded import run, stage, times

NAMES = ("a", "b")
ASKED = ((0.02, False), (0.02, True), (0.03, False), (0.05, True))  # threshold, strict
Pair = tuple[Results, Results]


def comparisons() -> str:
    """The text of `comparisons.txt`."""
    told = {title: list(_told(*pair)) for title, pair in pairs_of_runs().items()}
    told |= {title: list(_of_several(runs)) for title, runs in _several().items()}
    return "\n\n".join("\n  ".join([title, *lines]) for title, lines in told.items()) + "\n"


def pairs_of_runs() -> dict[str, Pair]:
    """Two runs each, by what differs between them."""
    return {**_times(), **_paces(), **_passed(), **_code(), **_without_times()}


def _told(base: Results, new: Results) -> Iterator[str]:
    try:
        found = compare(base, new, NAMES)
    except CannotCompareError as error:
        yield str(error)
        return
    codes = [compare(base, new, NAMES, threshold=share, strict=strict).exit_code for share, strict in ASKED]
    yield f"{conclusion(found)} Exit codes: {codes}."
    yield from map(_line, found.stages)


def _line(one: StageVerdict) -> str:
    ends = (
        ""
        if one.ratio is None or one.low is None or one.high is None
        else f" {one.ratio:.4f} ({one.low:.4f}-{one.high:.4f})"
    )
    flags = [*["a regression"] * one.regression, *[f"lost: {one.lost}"] * bool(one.lost), *one.remarks]
    return f"{one.name}: {one.words or 'no verdict'}{ends}{''.join(f'; {flag}' for flag in flags)}"


def naive(*step_us: float) -> Results:
    """A run of one stage whose processes took so long a step."""
    return run(stage("naive", step_us))


def both(naive_us: float = 50.0) -> Results:
    """A run of two stages."""
    return run(stage("naive", times(naive_us)), stage("async", times(40.0)))


def _times() -> dict[str, Pair]:
    calm, base = times(50.0), naive(*times(50.0))
    wide, slower = naive(*times(50.0, scatter=0.3)), naive(*times(52.0, scatter=0.3))
    pairs = {
        f"{factor} times as long": (base, naive(*(us * factor for us in calm))) for factor in (1.0, 1.0199, 1.0201, 0.5)
    }
    pairs |= {
        "chance may explain a slower median": (wide, slower),
        "some processes were faster": (naive(*[50.0] * 8), naive(*[50.0] * 5, *[45.0] * 3)),
        "the same processes in another order": (base, naive(*reversed(calm))),
        "the same run": (wide, wide),
        "the same run, resumed since": (_with(wide, processes=wide.stages[0].processes[:-1]), wide),
    }
    for processes, factor in itertools.product((1, 2, 5), (1.0, 1.1, 2.5)):
        few = times(50.0, processes=processes, scatter=0.0001)
        pairs[f"{processes} of {factor} times"] = naive(*few), naive(*(us * factor for us in few))
    for regime in ("graph", "host"):
        two = [run(replace(stage("cuda-graph", times(us, processes=2)), regime=regime)) for us in (18.0, 18.1)]
        pairs[f"two processes paced by the {regime}"] = two[0], two[1]
    for number, disturbed in ((8, 8), (4, 1), (4, 4)):
        one, other = (naive(*times(us, processes=number)) for us in (50.0, 100.0))
        pairs[f"{disturbed} of {number} disturbed"] = one, _disturbed(other, disturbed)
    pairs["many kinds of change"] = recorded.before(), recorded.after()
    return pairs


def _disturbed(results: Results, first: int) -> Results:
    processes = [
        replace(one, disturbed=["heat"] * (nth < first)) for nth, one in enumerate(results.stages[0].processes)
    ]
    return _with(results, processes=processes)


def _with(results: Results, name: str = "naive", **changes: object) -> Results:
    return sample.replace_stage(results, name, **changes)


def on_cpu(step_us: float, *paces_s: float | None, cpu: str = "a CPU") -> Results:
    """Twelve processes of NumPy, with these CPU speed readings in turn."""
    numpy = stage("numpy", times(step_us), group="reference")
    paced = zip(numpy.processes, itertools.cycle(paces_s), strict=False)
    results = run(replace(numpy, processes=[replace(process, pace_s=pace_s) for process, pace_s in paced]))
    return replace(results, environment={**results.environment, "cpu": {"model": cpu}})


def _paces() -> dict[str, Pair]:
    base, paced = on_cpu(100.0, 1.0), ((130.0, 1.3), (109.0, 1.09), (100.0, 1.3), (77.0, 1 / 1.3), (150.0, 1.3),
                                      (130.0, 1.0), (100.0, 1.0), (130.0, None))  # fmt: skip
    pairs = {f"{us:g} us at a pace of {pace_s}": (base, on_cpu(us, pace_s)) for us, pace_s in paced}
    pairs |= {f"a few paces of {wild:g}": (base, on_cpu(105.0, 1.0, wild, 1.0)) for wild in (5.0, 65.0)}
    pairs["some processes have no pace"] = base, on_cpu(130.0, 1.3, None, 1.3)
    pairs["another CPU"] = base, on_cpu(130.0, 1.3, cpu="another CPU")
    return pairs


def _passed() -> dict[str, Pair]:
    base, pairs = both(), dict[str, Pair]()
    for status in ("failed", "crashed", "skipped"):
        new = _with(base, "async", status=status, reason="no\nluck", timing=None)
        later = _with(new, processes=stage("naive", times(60.0)).processes)
        pairs |= {f"{status} since": (base, new), f"{status} no longer": (new, base)}
        pairs |= {f"{status} in both": (new, later), f"{status} since, and a slower one": (base, later)}
    pairs |= {"absent": (base, naive(*times(50.0))), "new": (naive(*times(50.0)), base)}
    timing, (first, *others) = base.stages[0].timing, base.stages[0].processes
    assert timing is not None
    changes: dict[str, Any] = {"timing": replace(timing, epochs=1), "precision": "bfloat16", "device": "cpu"}
    pairs["another kind"] = base, _with(base, **changes, processes=[replace(first, disturbed=["heat"]), *others])
    return pairs


def _code() -> dict[str, Pair]:
    base, codes = naive(*times(50.0)), (
        (StageCode("a", "b"), StageCode("a", "c")), (StageCode("a", None), StageCode("b", None)),
        (StageCode("a", "b"), StageCode("b", "c")), (StageCode("a", "b"), StageCode("a", "b", scheme=3)),
        (StageCode("a", "b", timer="c"), StageCode("a", "b", timer="d")), (StageCode("a", "b"), StageCode("a", "b")),
        (None, StageCode("a", "b")),
    )  # fmt: skip
    changes: tuple[dict[str, Any], ...] = ({}, {"status": "crashed", "timing": None})
    return {
        f"{then} and {now}{', crashed' * bool(more)}": (
            _with(base, code=then),
            _with(naive(*times(50.0)), code=now, **more),
        )
        for then, now in codes
        for more in changes
    }


def _without_times() -> dict[str, Pair]:
    base = naive(*times(50.0))
    (first, *_) = base.stages[0].processes

    def of(*run_s: float) -> list[Process]:
        return [replace(first, runs_s=[seconds]) for seconds in run_s]

    lists = {"zero": of(0.0, 1.0), "below zero": of(-1.0), "inf": of(float("inf")), "nan": of(float("nan")), "none": []}
    return {
        "another stage": (base, run(stage("async", times(50.0)))),
        "no stage": (base, run()),
        "skipped": (base, _with(base, status="skipped", timing=None)),
        **{f"times: {what}": (base, _with(base, processes=processes)) for what, processes in lists.items()},
    }


def _of_several(runs: Sequence[Results]) -> Iterator[str]:
    """A line a stage with its time and verdict in each run, and the rungs that change order."""
    try:
        found = compare_machines(list(zip("abcd", runs, strict=False)))
    except CannotCompareError as error:
        yield str(error)
        return
    for row in found.rows:
        cells = (f"{one.step_us or 0:.2f} {one.words} {one.ratio or 0:.4f}" for one in row.cells)
        yield f"{row.name}: {'; '.join(' '.join(cell.split()) for cell in cells)}"
    yield from orders(found)


def _several() -> dict[str, list[Results]]:
    noisy, near = (run(stage("naive", times(us, scatter=0.3))) for us in (50.0, 50.1))
    rungs = run(stage("naive", times(50.0)), stage("async", times(51.0)))
    wide = run(stage("naive", times(50.0, scatter=0.2)), stage("async", times(49.0, scatter=0.2)))
    slow, fast = (run(stage("naive", times(50.0)), stage("numpy", times(us), group="reference")) for us in (60.0, 40.0))
    small = replace(rungs, problem=replace(rungs.problem, batch_size=64))
    return {
        "three machines": [one for _, one in recorded.machines()],
        "an order that may have changed": [wide, rungs, rungs],
        "a reference that changes order": [slow, fast, fast],
        "each has a stage of its own": [run(stage("x", times(1.0))), run(stage("y", times(2.0))), run()],
        "paces that explain a difference": [on_cpu(100.0, 1.0), on_cpu(130.0, 1.3), on_cpu(130.0, 1.3, cpu="another")],
        "a run named twice": [noisy, noisy, near],
        "another batch": [rungs, rungs, small],
        "none was timed": [run(), run(), run()],
        "one run three times": [recorded.before()] * 3,
    }
