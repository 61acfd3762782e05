"""A figure for each ablation: where a step's time goes in each of its rungs, and what the profile counted there."""

from __future__ import annotations

from collections.abc import Sequence

from ladder.records.run import Group, Results, Spread
from reports.facts import numbers
from reports.facts.ablations import ablation, hidden_share, uploads
from reports.facts.profiles import calls_in_words
from reports.facts.study_points import is_disturbed
from reports.facts.time_breakdown import PARTS, Profiled
from reports.facts.times import step_us
from reports.figures.canvas import Canvas
from reports.figures.chart import Heading, Key, legend
from reports.figures.style import PART_COLOURS, PIXELS, subject

TITLES: dict[Group, str] = {"memory": "Allocating", "data": "Bringing each batch"}
LEFT, RIGHT = 150, 760  # pixels: the axis; the longest bar's time stands on its right
TOP, ROW, BOTTOM = 92, 44, 26


def ablation_figure(results: Results, group: Group) -> Canvas:
    """A bar of parts for each rung of an ablation, which must have a profiled rung."""
    rungs = ablation(results, group)
    spreads = [step_us(rung.stage) or Spread.of([rung.step_us]) for rung in rungs]
    bar = max(sum(rung.parts_us.values()) for rung in rungs)
    longest = min(max(bar, *(spread.max for spread in spreads)), 1.5 * bar)  # one slow run must not shrink all bars
    ends = (min(rungs, key=lambda rung: rung.step_us), max(rungs, key=lambda rung: rung.step_us))
    (least, its_us), (most, most_us) = ((rung.stage.name, numbers.microseconds(rung.step_us)) for rung in ends)
    title = f"{TITLES[group]}: {its_us} us per step with {least}, {most_us} with {most}"
    canvas = Canvas(PIXELS, TOP + ROW * len(rungs) + BOTTOM, f"{title}, {subject(results)}", _description(rungs, group))
    Heading(title, subject(results)).draw(canvas)
    there = [name for name in PARTS if any(rung.parts_us[name] > 0 for rung in rungs)]
    legend(canvas, [Key(name, PART_COLOURS[name]) for name in there], 58)
    for index, (rung, spread) in enumerate(zip(rungs, spreads, strict=True)):
        top = TOP + ROW * index
        canvas.text(LEFT - 12, top + 13, rung.stage.name, anchor="end", look="mono")
        begin = float(LEFT)
        for name, us in rung.parts_us.items():
            width = us / longest * (RIGHT - LEFT)
            canvas.rectangle(begin, top, width, 18, PART_COLOURS[name])
            begin += width
        low, high = (LEFT + min(us / longest, 1) * (RIGHT - LEFT) for us in (spread.min, spread.max))
        canvas.line([(low, top + 9), (high, top + 9)], "ink", width=1.5)
        for end in (low, high) if spread.max <= longest else (low,):
            canvas.line([(end, top + 5), (end, top + 13)], "ink", width=1.5)
        canvas.text(max(begin, high) + 6, top + 13, numbers.microseconds(rung.step_us), look="bold")
        slowest = f"; slowest run {numbers.microseconds(spread.max)}" if spread.max > longest else ""
        disturbed = "; measured while disturbed" if is_disturbed(rung.stage) else ""
        canvas.text(LEFT, top + 32, f"{_counted(rung, group)}{slowest}{disturbed}", "faint", look="small")
    foot = "us/step: the number is timed; parts are from the profile, scaled to it; whiskers: fastest to slowest run"
    canvas.text(12, TOP + ROW * len(rungs) + 14, foot, "faint", look="small")
    return canvas


def _counted(rung: Profiled, group: Group) -> str:
    """The profile's counts, as a line under the bar."""
    profile = rung.profile
    if group == "memory":
        waits = numbers.per_step(profile.syncs_per_epoch)
        return f"an epoch: allocator calls {calls_in_words(profile.allocations_per_epoch)}; waits {waits}"
    copied = uploads(profile)
    if copied is None:
        return "no copies to the GPU"
    hidden = numbers.share(hidden_share(copied))
    return f"copies {numbers.size(copied.bytes_per_epoch)} per epoch; kernels run during {hidden} of that time"


def _description(rungs: Sequence[Profiled], group: Group) -> str:
    """The figure in words, for a reader who cannot see it."""
    rows = [f"{rung.stage.name} {numbers.microseconds(rung.step_us)} ({_counted(rung, group)})" for rung in rungs]
    return f"Microseconds per step: {'; '.join(rows)}."
