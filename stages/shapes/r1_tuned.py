"""Tuned shapes: blocks and tiles of the naive kernels as this GPU likes them for the sizes at hand.

Why: the naive kernels have the blocks that one writes down without thinking, 16 x 16 threads for a product and 256 for
everything else, and a thread has one output. The logits of softmax regression are 128 x 10: eight such blocks, on a GPU
with 132 multiprocessors, six in sixteen of their threads idle. A thread that walks down k alone waits for two loads for
each product; one with several outputs has more loads under way, and uses each of them more than once.

Change: shapes. Every kernel is launched in the shape that was measured to be fastest for its operation's sizes: threads
of a block, and outputs of a thread. The kernels and what they compute stay the same. `python run_ladder.py tune`
measures them; what it has not measured yet for this GPU, these sources and these sizes is measured while preparing.

Expect: a third less for the products of softmax regression, whose blocks then are many enough for all multiprocessors:
the first takes 20 us instead of 30, and a step 60 instead of 75, since the host waits in every one. With a hidden layer
of 256 the products have enough threads, and gain from two to four outputs each: half of their time. The element-wise
kernels gain nothing, since each takes what a launch takes.

Found: 4 % in a trial on an H200, of one process each: 36.6 to 35.3 ms an epoch of softmax regression, 53.6 to 51.5 with
256 hidden units. No shape makes the forward products faster, 23.5 and 25.2 us in 16 x 16: what they take is 784 loads
one after the other, however threads are arranged. The gradient of the hidden weights gains 1.21 times, softmax 1.29,
the gradient of the bias 1.11, and nothing of the rest over 1.05.

It stands beside the ladder, whose further rungs replace these kernels by faster ones, one after the other: nothing that
is tuned here would be left at the top.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from common.data.dataset import Split
from common.problem import Problem
from stages.classic import r1_naive
from stages.engine.launch_shapes import FixedShapes, Shape, Sizes
from stages.engine.step import RecipeTrainer
from stages.shapes.shape_sweeps import Sweeps


class TunedShapes(FixedShapes):
    """Every kernel in the shape that measured fastest for the sizes."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self._sweeps = Sweeps(device)

    def shape(self, kernel: str, sizes: Sizes) -> Shape:
        """What was kept, or is measured now."""
        sweep = self._sweeps.get(kernel, sizes) or self._sweeps.measure(kernel, sizes)
        return sweep.shape


STAGE = r1_naive.STAGE.climb("tuned", "Tuned launch shapes", group="shapes", shapes=TunedShapes)


def operations(problem: Problem, train: Split, device: Any) -> list[tuple[str, Sizes]]:
    """What a step launches: each kernel with each of its sizes once, in order; takes a step's memory on the device."""
    asked: dict[tuple[str, Sizes], None] = {}

    class Listening(FixedShapes):
        def shape(self, kernel: str, sizes: Sizes) -> Shape:
            asked[kernel, sizes] = None
            return super().shape(kernel, sizes)

    assert STAGE.recipe is not None
    RecipeTrainer(replace(STAGE.recipe, shapes=Listening), problem, train.first(problem.batch_size), device).close()
    return list(asked)
