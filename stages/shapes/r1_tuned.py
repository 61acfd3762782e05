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

Found: in a trial on an H200, 4 %: 36.6 to 35.3 ms an epoch of softmax regression, 53.6 to 51.5 with 256 hidden units,
one process each. No shape makes the forward products faster than 16 x 16, at 23.5 and 25.2 us: a thread makes 784 loads
one after the other, in any shape. The gradient of the hidden weights gains 1.21 times. That rung tuned the other naive
kernels too. Only softmax (1.29) and the bias's gradient (1.11) gained, so those kernels have fixed shapes now. With
products alone, recorded on an H200 (study `launch-shapes`), batches of 1,024 gain 1.34 times at 1,024 hidden units and
1.11 at 256. In batches of 32, and without hidden layers, products take 2 to 16 % longer than in fixed shapes.

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
