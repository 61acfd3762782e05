"""Rings that start early copy weights before they wait: no kernel that may still run writes these weights."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stages.fusion.test_parallel_branches import RacingDevice, Work


def two_steps(layers: int, *, first_waits: bool) -> RacingDevice:
    """The rings of two steps, and the last layer between them, which lets the next kernel start at once."""
    device, weights = RacingDevice(), [np.zeros(1) for _ in range(layers)]
    forward, back = [("forward", i) for i in range(layers)], [("back", i) for i in reversed(range(layers))]
    started = ended = frozenset[int]()  # what is complete when the next kernel starts, and when the last one has ended
    for name, i in 2 * [*forward, ("last layer", -1), *back]:
        own, before = [weights[i]] if i >= 0 else [], len(device.work)
        device.work.append(
            Work(f"copies, {name}", own, [], ended if first_waits and name + str(i) == "forward0" else started)
        )
        device.work.append(Work(name, own, own if name == "back" else [], ended | {before}))
        started = ended if i >= 0 else started  # a ring lets the next kernel start after its own wait
        ended |= {before, before + 1}
    return device


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_only_the_first_layer_forward_has_to_wait_for_its_weights(layers: int) -> None:
    assert two_steps(layers, first_waits=True).races() == []
    assert set(two_steps(layers, first_waits=False).races()) == {("back", "copies, forward")}
