"""One graph holds eight steps.

Why: `step-graph` is launched once a step, and the device waits some microseconds between two graphs.
Change: launch: eight recorded steps instead of one.
Expect: 1.01 to 1.06 times as fast as `step-graph`. It is off by default, since metrics and schedules of the host then
come every eighth step alone.
"""

from __future__ import annotations

from stages.torch import r5_step_graph


class StepsGraph(r5_step_graph.StepGraph):
    """Replays eight recorded steps at once, and what is left over one by one."""

    steps = 8


RUNG = r5_step_graph.RUNG.climb("steps-graph", "eight steps per graph", is_default=False, launch=StepsGraph)
