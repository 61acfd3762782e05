"""What studies say that differ from the sample in one thing, and what several say side by side."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from msgspec.structs import replace

from ladder.records.run import Results, Spread, StageResult
from ladder.records.study import Point
from reports.facts.many_runs import compare_studies
from reports.facts.study_points import StudyResults
from reports.facts.two_runs import CannotCompareError
from reports.figures.run_figures import study_drawings
from reports.screens.blocks import Screen
from reports.screens.compare import machines_screen
from reports.screens.study import study_report_screen, study_screen
from reports.writers.markdown import markdown
from reports.writers.terminal import write_terminal
from tests.reports.recorded import run, stage, times
from tests.reports.sample import replace_stage
from tests.reports.study_sample import curve_results, run_at, study, study_results
from tests.reports.terminal.screens import screen

SAMPLE = study_results([64, 128, 256])
AT_64 = SAMPLE.runs["hidden-64"]


def studies() -> str:
    """The text of `studies.txt`."""
    parts = [(title, list(_added(results))) for title, results in _scenarios().items()]
    return "\n\n".join("\n  ".join([title, *lines]) for title, lines in (*parts, *_side_by_side())) + "\n"


def _lines(results: StudyResults) -> list[str]:
    """Every row and sentence of a study, and the titles of its figures."""
    texts = (
        screen(partial(write_terminal, study_screen(results)), 200), markdown(study_report_screen(results)),
        *(f"{name}: {canvas.title}." for name, canvas in study_drawings(results)),
    )  # fmt: skip
    lines = (" ".join(raw.split()) for text in texts for raw in text.splitlines())
    return [part for line in lines for part in (re.split(r"(?<=[.;]) ", line) if line[:1] != "|" else [line]) if part]


WEAK = "a point has only a weak reference"
KNOWN = Counter(_lines(SAMPLE))


def _added(results: StudyResults) -> Iterator[str]:
    own = Counter(_lines(results))
    yield from own - KNOWN
    yield f"lines that it lacks: {(KNOWN - own).total()}"


def _of(runs: dict[str, Results], **changes: Any) -> StudyResults:
    return StudyResults(replace(SAMPLE.study, **changes), runs)


def _at_64(name: str, **changes: Any) -> StudyResults:
    return _of({**SAMPLE.runs, "hidden-64": replace_stage(AT_64, name, **changes)})


def _scenarios() -> dict[str, StudyResults]:
    points = SAMPLE.study.points
    (calm,) = next(one for one in AT_64.stages if one.name == "naive").processes
    busy = replace(calm, disturbed=["other processes kept 30% of the host's cores busy"])
    slow = replace(busy, runs_s=[1.1 * seconds for seconds in busy.runs_s])
    by_rate = [replace(point, values={"learning_rate": rate}) for rate, point in enumerate(points)]
    code = {"git_commit": "f" * 40, "uncommitted_changes": False}
    elsewhere = {"gpu": {"name": "NVIDIA L40S", "driver": "580.65"}}
    later = SAMPLE.runs["hidden-128"]
    weak = replace(AT_64, stages=[one for one in AT_64.stages if one.name != "jax-scan"])
    rungs = {
        name: replace(one, stages=[stage for stage in one.stages if stage.group != "reference"])
        for name, one in SAMPLE.runs.items()
    }
    crossed = [Point(f"{size}.{batch}", {"batch_size": batch, "hidden": size}, {}, "measured")
               for batch, size in product((8, 32), (64, 128, 256))]  # fmt: skip
    curves = curve_results(2)
    on_two = {
        name: replace(one, environment=elsewhere) if "seed-1" in name else one for name, one in curves.runs.items()
    }
    return {
        "disturbed in vain": _at_64("naive", processes=[calm, busy]),
        "disturbed once": _at_64("naive", processes=[calm, slow]),
        "always disturbed": _at_64("naive", processes=[busy, busy]),
        "of learning rates": _of({**SAMPLE.runs}, varied=["learning_rate"], points=by_rate),
        "a reference is missing that may be faster": _with_missing(),
        "begun": _of({**SAMPLE.runs}, points=[*points[:2], replace(points[2], status="begun", reason=None)]),
        "stopped": _of({**SAMPLE.runs}, points=[*points[:2], replace(points[2], status="begun", reason="out of time")]),
        "a point of another commit": _of(
            {**SAMPLE.runs, "hidden-128": replace(later, environment={**later.environment, "code": code})}
        ),
        "a point of another GPU": _of(
            {**SAMPLE.runs, "hidden-128": replace(later, environment={**later.environment, **elsewhere})}
        ),
        "no point is measured": _of({}),
        "one point": _of({"hidden-64": AT_64}),
        "nothing varies": StudyResults(
            replace(study("hidden", [Point("run", {}, {}, "measured")]), varied=[]), {"run": AT_64}
        ),
        "two settings": StudyResults(
            replace(study("hidden", crossed), varied=["batch_size", "hidden"]),
            {one.name: run_at(one.values["hidden"], one.values["batch_size"]) for one in crossed},
        ),
        WEAK: _of({"hidden-64": weak, "hidden-128": later}),
        "no stronger reference is known": _of({"hidden-64": weak}),
        "no references": _of(rungs),
        "more differs than is varied": _of_depths(),
        "... and a point's seed": _of_depths(seed=7),
        "curves on two GPUs": StudyResults(curves.study, on_two),
    }


def _with_missing() -> StudyResults:
    """`jax-scan` is faster than another reference at one point, slower at one, and not timed at the third."""
    results = study_results([64, 128, 256, 512])
    runs = dict(results.runs)
    for name, factor in (("hidden-64", 0.5), ("hidden-128", 2.0)):
        base = next(one for one in runs[name].stages if one.name == "torch-eager").timing
        assert base is not None
        timing = replace(base, epoch_s=Spread(*[base.epoch_s.median * factor] * 3))
        runs[name] = replace_stage(runs[name], "jax-scan", timing=timing)
    runs["hidden-256"] = replace_stage(runs["hidden-256"], "jax-scan", status="skipped", timing=None)
    return StudyResults(results.study, runs)


def _of_depths(**last: object) -> StudyResults:
    """A study of depths and numbers of networks, whose batch differs with the depth."""
    of_depth = {0: {"batch_size": 128}, 1: {"batch_size": 32, "max_steps": 9}, 3: {"batch_size": 32, "max_steps": 9}}
    points = [
        Point(f"{depth}-{count}", own := {"depth": depth, "networks": count}, {**own, **more}, "measured")
        for depth, more in of_depth.items()
        for count in (1, 4, 16, 64)
    ]
    points[-1] = replace(points[-1], settings={**points[-1].settings, **last})
    one, runs = run_at(128), {}
    for point in points:
        of, hidden = point.settings, [128] * point.values["depth"]
        problem = replace(one.problem, hidden=hidden, batch_size=of["batch_size"], networks=of["networks"])
        runs[point.name] = replace(one, problem=problem)
    return StudyResults(replace(study("depth", points), varied=["depth", "networks"]), runs)


def study_of(gpu: str, us: dict[int, tuple[float, float]]) -> StudyResults:
    """A study whose points have a time of `naive` and of `async`, beside a reference and a stage without a time."""
    skipped = replace(stage("persistent", times(1.0)), status="skipped", timing=None, processes=[])

    def stages(naive: float, other: float) -> list[StageResult]:
        timed = [stage("naive", times(naive)), stage("async", times(other), below="naive")]
        return [stage("numpy", times(90.0), group="reference"), *timed, skipped]

    points = [Point(f"hidden-{size}", {"hidden": size}, {"hidden": size}, "measured") for size in us]
    known = {size: run(*stages(*pair), gpu=gpu) for size, pair in us.items()}
    runs = {f"hidden-{size}": replace(one, problem=replace(one.problem, hidden=[size])) for size, one in known.items()}
    return StudyResults(study("hidden", points), runs)


def two() -> list[tuple[str, StudyResults]]:
    """Of the points that both have, the rungs change order at one; each has a point of its own."""
    a100 = study_of("NVIDIA A100", {64: (50.0, 40.0), 128: (60.0, 55.0), 256: (99.0, 99.0)})
    h100 = study_of("NVIDIA H100", {64: (25.0, 20.0), 128: (30.0, 33.0), 512: (99.0, 99.0)})
    return [("runs/a100", a100), ("runs/h100", h100)]


def _side_by_side() -> Iterator[tuple[str, list[str]]]:
    yield "two studies", _shown(machines_screen(compare_studies(two())))
    small, large = study_of("A", {64: (2.0, 1.0)}), study_of("B", {128: (2.0, 1.0)})
    wrong = StudyResults(small.study, {"hidden-64": large.runs["hidden-128"]})
    for title, other in (("no common point", large), ("another network", wrong)):
        try:
            compare_studies([("small", small), ("other", other)])
        except CannotCompareError as error:
            yield title, [str(error)]


def _shown(of: Screen) -> list[str]:
    """A screen as a document, in two widths, and its rows."""
    texts = (markdown(of), *(screen(partial(write_terminal, of), width) for width in (80, 50)))
    return [line.rstrip() for text in texts for line in text.splitlines() if line.strip()] + list(map(str, of.rows))
