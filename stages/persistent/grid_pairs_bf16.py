"""Grid of paired layers, bfloat16: a block multiplies its outputs of a layer on into the layer above.

Why: in `grid-bf16` a wide layer takes four barriers of 0.9 us per step, two for its sums on each way. Of 212-1588-30-7
that is six. All its layers have parts to add up, and each block reads all weights of the last layers.

Change: launch. A block has some outputs of a layer with all their inputs, so it completes them without other blocks. In
a pair of layers it also has the weights from its outputs to all of the layer above, and on the way back the gradients
of its outputs. Only sums between pairs travel: a pair takes four barriers, the first pair two. It suits a narrow layer
above a wide one. Several threads share out the many parts of a sum. The first layer may stay alone, cut along its
inputs, where it is narrow.

Expect: 212-1588-30-7 in batches of 224 takes 9.5 us instead of 22.3: two barriers instead of six, 4 us of products,
1.5 us of sums, 0.5 us for two rows of the last layer, a warp each, and 1.7 us for images, of which a block holds one
step's. 199-1403-50-2704-50 in batches of 65 takes 14 us with six barriers, where `grid-bf16` takes 66.1 with ten.
Blocks with all inputs and the whole batch leave no room for many images: 342-2059-199-4 at 184 does not fit.

Predict: on H200: 212-1588-30-7, batch 224: 9.5 us; 199-1403-50-2704-50, batch 65: 14 us;
133-35-1047-20-14, batch 42: 9.2 us; 82-787-29-14, batch 308: 9.7 us; 391-39-1189-218-168-7, batch 92: 18.5 us.

Found: it misses by 13 to 47%, and is 1.1 to 4.2 times as fast as `grid-bf16` on twelve networks, most where the last
layer has many weights. Barriers take what was expected; the phases between them take a third longer, in most networks
alike. Clusters and messages are faster where they fit (docs/notebook/large-batch.md).
"""

from __future__ import annotations

from typing import Any, ClassVar

from common.problem import Problem
from stages.persistent import grid_bf16, pairs_plan
from stages.persistent.grid_bf16 import BFloat16GridEpoch


class PairsEpoch(BFloat16GridEpoch):
    """The grid with pairs of layers; MisfitError for a problem that does not fit."""

    kernel: ClassVar[tuple[str, str]] = ("grid/grid_pairs.cu", "grid_pairs")
    plans: ClassVar[Any] = pairs_plan

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem with `steps` steps an epoch does not fit; empty if it fits."""
        return pairs_plan.misfit(problem, steps, cls.parts)


STAGE = grid_bf16.STAGE.climb(
    "grid-pairs-bf16",
    "Grid of paired layers, bfloat16",
    words="two layers share a phase",
    launch=PairsEpoch,
)
