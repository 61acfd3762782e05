"""A figure for each ablation: where a step's time goes in each of its rungs, and what the profile counted there."""

from __future__ import annotations

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ladder.records.run import Group, Results
from reports.facts import numbers
from reports.facts.ablations import ablation, calls_in_words, hidden_share, uploads
from reports.facts.time_breakdown import PARTS, Profiled
from reports.figures.style import BACKGROUND, FAINT, PART_COLOURS, STYLE, WIDTH, tidy, title

TITLES: dict[Group, str] = {"memory": "The cost of allocating", "data": "The cost of bringing each batch"}
ROW = 0.55  # inches


def ablation_figure(results: Results, group: Group) -> Figure:
    """A bar of parts for each rung of an ablation, which must have a profiled rung."""
    found = ablation(results, group)
    longest = max(sum(one.parts_us.values()) for one in found)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 1.5 + ROW * len(found)), layout="constrained", facecolor=BACKGROUND)
        axes = figure.add_subplot()
        axes.set_xlim(0, longest * 1.12)  # room for the number beside the longest bar
        axes.set_ylim(len(found) - 0.4, -0.6)
        axes.set_yticks(range(len(found)), [one.stage.name for one in found])
        axes.tick_params(axis="y", length=0)
        for place, one in enumerate(found):
            begin = 0.0
            for name, us in one.parts_us.items():
                axes.barh(place - 0.1, us, 0.44, begin, facecolor=PART_COLOURS[name])
                begin += us
            time = numbers.microseconds(one.step_us)
            axes.annotate(
                time, (begin, place - 0.1), (5, 0), textcoords="offset points", va="center", fontweight="bold"
            )
            axes.annotate(
                _counted(one, group),
                (0, place + 0.15),
                (2, -2),
                textcoords="offset points",
                va="top",
                size=7.5,
                color=FAINT,
            )
        tidy(axes, "x")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("us/step: the parts are from the profile, the number is timed")
        keys = [Patch(color=PART_COLOURS[name], label=name) for name in PARTS]
        figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False, fontsize=9)
        title(figure, TITLES[group], results)
    return figure


def _counted(one: Profiled, group: Group) -> str:
    """The profile's counts, as a line under the bar."""
    profile = one.profile
    if group == "memory":
        waits = numbers.per_step(profile.syncs_per_epoch)
        return f"an epoch: allocator calls {calls_in_words(profile.allocations_per_epoch)}; waits {waits}"
    copied = uploads(profile)
    if copied is None:
        return "no copies to the GPU"
    hidden = numbers.share(hidden_share(copied))
    return f"copies {numbers.size(copied.bytes_per_epoch)} an epoch; kernels run during {hidden} of that time"
