"""Tuned launch shapes: the block and the tile of the naive product, measured for this GPU and these sizes.

Why: the naive product has blocks of 16 x 16 threads and one output a thread, whatever its sizes. The logits of softmax
regression are 128 x 10: eight such blocks, on a GPU with 132 multiprocessors, and six of every sixteen threads idle. A
thread with one output waits for two loads before each product. A thread with several outputs has more loads in flight,
and uses each of them more than once.

Change: gemm. Every product runs in the launch shape that measured fastest for its sizes: threads of a block, and
outputs of a thread. The sums and their order stay the same. While it prepares, the rung measures every shape that the
cache does not have for this GPU, these sources and these sizes. `experiments/launch-shapes.toml` asks what it is worth.

Expect: a third less for the products of softmax regression, whose blocks are then enough for all multiprocessors:
the first takes 20 us instead of 30, and a step 60 instead of 75, since the host waits in every one. With a hidden layer
of 256 the products have enough threads, and gain from two to four outputs each: half of their time.

Predict: on H200: 784-10, batch 128: 60 us.

Found: no shape makes the product of softmax regression faster: a thread makes its 784 loads one after the other in any
of them. Large batches with hidden layers gain, most with the most units (study `launch-shapes`). In batches of 32
products take a little longer than in the fixed shape, so tuning pays for large products alone.

It stands beside the ladder: the rungs above `naive` replace this product by faster ones, so no tuning would remain.
"""

from __future__ import annotations

from stages.classic import r1_naive
from stages.engine.parts import float32, int32
from stages.engine.recipe import Gemm
from stages.engine.workspace import Array, Setup
from stages.shapes.launch_shapes import Launch, Product, Shape, load
from stages.shapes.shape_sweeps import Sweeps


class TunedGemm(Gemm):
    """One thread a tile of outputs, in the launch shape that measured fastest for the sizes."""

    def __init__(self, setup: Setup) -> None:
        self._device = setup.device
        self._launches: dict[Product, Launch] = {}

    def shape(self, product: Product) -> Shape:
        """The fastest shape: kept from an earlier sweep, or measured now."""
        sweeps = Sweeps(self._device)
        return sweeps.get(product) or sweeps.measure(product)

    def __call__(
        self,
        a: Array,
        b: Array,
        out: Array,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> None:
        """Enqueue out (m, n) = alpha * op(a) @ op(b) + beta * out."""
        m, n = out.shape
        product = Product(m, n, a.shape[0 if trans_a else 1], int(trans_a), int(trans_b))
        launch = self._launches.get(product)
        if launch is None:
            launch = self._launches[product] = load(self._device, self.shape(product), product)
        launch(a, b, out, *map(int32, product), float32(alpha), float32(beta))


STAGE = r1_naive.STAGE.climb("tuned", "Tuned launch shapes", group="shapes", gemm=TunedGemm)
