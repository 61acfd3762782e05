"""3. Fuse the head: softmax, its gradient and the totals are three kernels.

Why: (how many bytes does a kernel pass to the next, and what does a call cost?)

Change: (the one choice that you change)

Expect: (microseconds a step, written before you measure, and why)

Found: (the measured time: hit or missed, and what explains the difference)
"""

from stages import Array, Head, Setup, rung


class MyHead(Head):
    """Write one kernel with `stages.cpu_kernel`; with a GPU, one in CUDA C++, and climb from `naive`."""

    def __init__(self, setup: Setup) -> None:
        self.tensors = setup.tensors
        rows, classes = setup.tensors.logits.shape
        self.sizes = (rows, classes)
        self.probs = setup.tensors.memory.empty((rows, classes), "f4")
        self.softmax = setup.kernel("plain/softmax.cu", "softmax")
        self.backward = setup.kernel("plain/softmax.cu", "softmax_xent_backward")
        self.add_totals = setup.kernel("plain/softmax.cu", "softmax_xent_totals")

    def __call__(self, labels: Array, with_totals: bool) -> None:
        logits, dlogits, totals = self.tensors.logits, self.tensors.dlogits, self.tensors.totals
        self.softmax(1, 1, logits, self.probs, *self.sizes)
        self.backward(1, 1, self.probs, labels, dlogits, *self.sizes)
        if with_totals:
            self.add_totals(1, 1, logits, labels, totals, *self.sizes)


STAGE = rung("cpu-blas").climb("fuse-the-head", "Fuse the head", head=MyHead)
