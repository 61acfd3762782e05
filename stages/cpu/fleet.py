"""CPU fleet: each core trains some of several networks, and never waits for another.

Why: seeds and learning rates are trained in a row. If cores share each step, they meet twice in it, and every network
reads all images anew.

Change: launch. A network belongs to one core. Each core trains its networks batch by batch, so that the images of a
batch are read from memory once. `fleet-cluster` is its cousin.

Expect: two networks on two cores take as long as one on one core. With more, a network's step costs less, since its
images are in the second-level cache: on two cores 0.45 of the time in a row for seven softmax regressions.

Predict: on CPU with 2 cores: 7 of 784-10, batch 128: 2.2 x of cpu-bytes.

Found: it is not recorded yet, so its prediction is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from common.cpu.cores import usable_cores
from stages.cpu import bytes
from stages.engine.fleet import FleetLaunch
from stages.engine.recipe import Recipe
from stages.engine.step import Step
from stages.engine.workspace import Setup

if TYPE_CHECKING:
    from common.cpu.host import Replay


class CoreForEach(FleetLaunch):
    """An epoch of all networks, recorded as one list of calls for each core."""

    needs = ()

    def __init__(self, setups: Sequence[Setup], recipe: Recipe) -> None:
        from common.cpu.host import Team  # late, since Numba is slow to import and may be missing

        self._device = setups[0].device
        threads = self._device.threads = self.lanes(len(setups))
        self._team = Team(threads)
        self._batches = [setup.tensors.batches for setup in setups[:threads]]
        self._steps = [[Step(recipe, setup) for setup in setups[thread::threads]] for thread in range(threads)]
        self._lists = {due: list(map(self._recorded, range(threads), repeat(due))) for due in (False, True)}

    @classmethod
    def lanes(cls, networks: int) -> int:
        """A core for each, as far as there are cores."""
        return min(usable_cores(), networks)

    def _recorded(self, thread: int, with_totals: bool) -> Replay:
        from common.cpu.host import Replay  # late, since Numba is slow to import and may be missing

        with self._device.recorded() as calls:
            for images, labels in self._batches[thread]:
                for step in self._steps[thread]:
                    step(images, labels, with_totals)
        return Replay(calls, thread)

    def __call__(self, with_metrics: bool) -> None:
        """Train every network on every batch, in order."""
        self._team.run(self._lists[with_metrics])


STAGE = bytes.STAGE.climb(
    "cpu-fleet", "A network a core", words="several networks, each on one core", launch=CoreForEach
)
