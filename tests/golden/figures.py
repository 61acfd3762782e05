"""What figures draw that no recorded run shows: other layouts, noise, a missing time, a curve outside of its limit."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from ladder.records.limits_record import Limit
from ladder.records.profile import Profile, Span, Split
from ladder.records.run import Check, Energy, Process, Results
from ladder.records.study import Point
from reports.facts.study_points import StudyResults
from reports.facts.time_breakdown import chain
from reports.figures import energy_figure, ladder, timeline_figure, waterfall
from reports.figures.advice_figure import advice_figure
from reports.figures.canvas import Canvas
from reports.figures.chart import FILE, PAGE, PHONE
from reports.figures.loss_curves import curves
from reports.figures.roofline import drawn as roofline
from reports.figures.step_time import axis_of, step_time
from reports.figures.torch_ladder import torch_ladder
from tests.golden.outlooks import GRID, GRID_BF16, outlooks, small
from tests.reports import sample
from tests.reports.figures.svg import parse
from tests.reports.profiles import own_kernels, profile
from tests.reports.study_sample import curve_results, run_at, study, study_results
from tests.reports.torch_sample import a_process, a_torch_run, with_rung

RUN = sample.results()
STAGES = {stage.name: stage for stage in RUN.stages}
SPANS = [
    Span("gpu", "gemm_naive", "gemm", 0.0, 20.0), Span("gpu", "sgd_update", "update", 25.0, 1.0),
    Span("gpu", "a_name_that_is_longer_than_its_bar", "other", 40.0, 12.0),
    Span("host", "cudaLaunchKernel", "launch", 0.0, 50.0), Span("host", "cuLaunchKernel", "launch", 5.0, 40.0),
]  # fmt: skip


def figures() -> str:
    """The text of `figures.txt`: each drawing's words with their places and looks, and a digest of its shapes."""
    return "\n".join("\n  ".join([title, *_elements(canvas)]) for title, canvas in canvases()) + "\n"


def _elements(canvas: Canvas) -> Iterator[str]:
    elements = list(parse(re.sub(r"(?s)<style>.*?</style>", "", canvas.svg())).iter())
    for one in elements:
        if text := (one.text or "").strip():
            yield " ".join([*one.attrib.values(), text])
    shapes = [f"{one.tag} {sorted(one.items())}" for one in elements if not (one.text or "").strip()]
    yield f"{len(shapes)} shapes, {hashlib.sha256(chr(10).join(shapes).encode()).hexdigest()[:12]}"


def canvases() -> Iterator[tuple[str, Canvas]]:
    """Each drawing with its title."""
    yield from _of_runs()
    yield from _of_losses()
    yield from _timelines()
    yield from _of_studies()
    asked = outlooks(*small(), replace(GRID, is_recorded=True), replace(GRID_BF16, measured_us=9.1), guess="A guess.")
    yield "what advise expects", advice_figure(asked)
    yield "what advise expects where ranges overlap", advice_figure(outlooks(*small()))
    torch, two = a_torch_run(), a_torch_run(rungs=a_torch_run().rungs[:2])
    yield "a user's model, on a telephone", torch_ladder(torch, PHONE)
    yield "a user's model, within noise", torch_ladder(two, FILE)
    faster = with_rung(two, "no-item", processes=[a_process(1000.0), a_process(1010.0)])
    yield "a user's model, faster by one rung", torch_ladder(faster, PAGE)


def changed(name: str, run: Results = RUN, **changes: Any) -> Results:
    """The run with other fields of a stage."""
    return sample.replace_stage(run, name, **changes)


def _of_runs() -> Iterator[tuple[str, Canvas]]:
    forked = changed("bf16-gemm", below="naive")
    noisy = changed("async", forked, timing=STAGES["naive"].timing)
    yield from ((f"the ladder in {layout.width:g} pixels", ladder.drawn(forked, layout)) for layout in (PAGE, PHONE))
    yield from (
        (f"a rung within noise in {layout.width:g} pixels", ladder.drawn(noisy, layout)) for layout in (FILE, PHONE)
    )
    slow = STAGES["torch-eager"].timing
    assert slow is not None
    far = slow.epoch_s.median * ladder.FARTHEST
    slow = replace(slow, epoch_s=replace(slow.epoch_s, median=far, min=far, max=far))
    weak = changed("torch-eager", changed("jax-scan", status="failed", reason="loss curve"), timing=slow)
    yield "a reference right of the axis", ladder.drawn(weak)
    yield "no rung was timed", ladder.drawn(sample.synthetic_results())
    yield "a waterfall on a telephone", waterfall.drawn(RUN, chain(RUN), PHONE)
    for title, run in (
        ("a waterfall with a change within noise", changed("async", timing=STAGES["naive"].timing)),
        ("a waterfall with a change of precision", changed("cublas", precision="tf32")),
        ("a waterfall that reaches below zero",
         changed("async", profiles=[profile(Split(1.0, 0.0, 4.0, 900.0, 0.1), own_kernels())])),
    ):  # fmt: skip
        yield title, waterfall.drawn(run, chain(run))
    drawn = Energy(0.4, 300.0, 120.0, 5.1)
    spent = changed("async", processes=[replace(one, energy=drawn) for one in STAGES["async"].processes])
    yield "energy of one rung", energy_figure.drawn(spent)
    asked = [replace(one, energy=replace(drawn, joules=1.2)) for one in STAGES["jax-scan"].processes]
    yield "energy beside a reference's", energy_figure.drawn(changed("jax-scan", spent, processes=asked))
    yield "a roofline", roofline(with_roofs())


def with_roofs() -> Results:
    """The sample with limits of 100 TFLOP/s, 10 TB/s to L2 and 5 TB/s to memory."""
    limits = sample.limits()
    known = [Limit("gemm_float32", "", "TFLOP/s", 100.0, 100.0, 100.0)]
    known += [Limit(name, "", "GB/s", rate, rate, rate) for name, rate in (("l2_read", 1e4), ("memory_copy", 5e3))]
    return replace(RUN, limits=replace(limits, limits=known))


def _of_losses() -> Iterator[tuple[str, Canvas]]:
    runs = list(curve_results().runs.values())[:3]
    curve = next(stage.curve for stage in runs[1].stages if stage.name == "naive")
    assert curve is not None
    for loss in (9.0, None):
        moved = replace(curve, training=[*curve.training[:-1], replace(curve.training[-1], loss=loss)])
        yield f"a last loss of {loss}", curves([runs[0], sample.replace_stage(runs[1], "naive", curve=moved), runs[2]])
    strict = [Check("loss curve", 0.0, 1e-12, passed=True)]
    yield "a strict limit", curves([sample.replace_stage(run, "naive", checks=strict) for run in runs])
    unchecked = [replace(run, stages=[replace(stage, checks=[]) for stage in run.stages]) for run in runs[:1]]
    yield "one seed without limits", curves(unchecked)


def _timelines() -> Iterator[tuple[str, Canvas]]:
    (seen,) = STAGES["async"].profiles

    def drawn(*profiles: Profile, **options: bool) -> Canvas:
        run = changed("async", profiles=list(profiles))
        rungs = [next(stage for stage in run.stages if stage.name == name) for name in ("naive", "async")]
        return timeline_figure.on_one_clock(list(map(timeline_figure.shown, rungs)), run, **options)

    yield "two timelines", drawn(seen)
    yield "two timelines of a page", drawn(seen, is_page=True)
    yield "names inside of bars", drawn(replace(seen, timeline=SPANS, timeline_us=100.0))
    for kernels in (1, 2):
        whole = replace(seen, timeline=[], timeline_us=0.0, kernels_per_step=kernels / sample.STEPS)
        yield f"{kernels} kernels an epoch", drawn(whole)


def _of_studies() -> Iterator[tuple[str, Canvas]]:
    results = study_results([64, 128, 256, 512])
    at_64, at_128 = results.runs["hidden-64"], results.runs["hidden-128"]
    (calm,) = next(stage for stage in at_64.stages if stage.name == "cublas").processes
    broken = sample.replace_stage(at_128, "cublas", status="crashed", reason="no", timing=None)
    disturbed = sample.replace_stage(at_64, "cublas", processes=[_busy(calm)])
    runs = {**results.runs, "hidden-64": disturbed, "hidden-128": broken}
    points = [Point(f"networks-{count}", {"networks": count}, {}, "measured") for count in (1, 4)]
    rates = [
        Limit(f"gemm_{unit}", "a matrix product", "TFLOP/s", rate, rate, rate)
        for unit, rate in (("float32", 50.0), ("bfloat16", 600.0))
    ]
    run = replace(run_at(128), limits=replace(sample.limits(), limits=rates))
    several = {point.name: _of_networks(run, point.values["networks"]) for point in points}
    for title, shown in (
        ("a study", results),
        ("a study with a missing time and a disturbed one", StudyResults(results.study, runs)),
        ("a study over networks", StudyResults(study("networks", points), several)),
    ):
        yield title, step_time(shown, axis_of(shown.study.varied, shown.measured), shown.measured)


def _busy(process: Process) -> Process:
    return replace(process, disturbed=["others used the CPU"])


def _of_networks(run: Results, count: int) -> Results:
    return replace(run, problem=replace(run.problem, networks=count))
