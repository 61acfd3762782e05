"""3. Fuse the head: softmax, its gradient and the totals are three kernels.

Target: one kernel in place of the three, so 6 kernels a step instead of 8.

Why: (how many bytes does a kernel pass to the next, and what does a call cost?)

Change: (the one choice that you change)

Expect: (microseconds a step, written before you measure, and why)

Found: (the measured time: hit or missed, and what explains the difference)
"""

import numpy as np

from stages import Array, Head, Setup, rung

BASE = "cpu-blas"  # with a GPU: "naive"
THREADS = 256  # a block on a GPU; a CPU needs neither grid nor block


class MyHead(Head):
    """Write one kernel with `stages.cpu_kernel`; with a GPU, one in CUDA C++, by `setup.kernel(path, name)`."""

    def __init__(self, setup: Setup) -> None:
        self.tensors = setup.tensors
        rows, classes = setup.tensors.logits.shape
        self.sizes = (np.int32(rows), np.int32(classes))
        self.by_row, self.by_logit = -(-rows // THREADS), -(-rows * classes // THREADS)  # blocks
        self.probs = setup.tensors.memory.empty((rows, classes), "f4")
        self.softmax = setup.kernel("plain/softmax.cu", "softmax")
        self.backward = setup.kernel("plain/softmax.cu", "softmax_xent_backward")
        self.add_totals = setup.kernel("plain/softmax.cu", "softmax_xent_totals")

    def __call__(self, labels: Array, with_totals: bool) -> None:
        logits, dlogits, totals = self.tensors.logits, self.tensors.dlogits, self.tensors.totals
        self.softmax(self.by_row, THREADS, logits, self.probs, *self.sizes)
        self.backward(self.by_logit, THREADS, self.probs, labels, dlogits, *self.sizes)
        if with_totals:
            self.add_totals(1, THREADS, logits, labels, totals, *self.sizes)


STAGE = rung(BASE).climb("fuse-the-head", "Fuse the head", head=MyHead)
