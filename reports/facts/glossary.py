"""The terms of reports and documents in plain words: the one place that explains them."""

from __future__ import annotations

TERMS: dict[str, str] = {
    "784-10": "a network by the sizes of its layers: 784 pixels in, 10 classes out, here softmax regression. "
    "784-128x3-10 has three hidden layers of 128.",
    "rung": "one version of the trainer. It climbs *from* another rung, by one choice changed; a launch that runs the "
    "whole step as one kernel also takes over the parts inside it.",
    "parent": "the rung that another one climbs from; a time is compared with the parent's.",
    "ladder": "all rungs together: a tree, because several rungs may climb from one.",
    "reference": "the same training in NumPy, PyTorch or JAX, as its user would write it.",
    "ablation": "a rung beside the ladder that varies what the ladder fixes: memory, data path, launch shapes, "
    "language.",
    "step": "one batch, forward, backward and update. An *epoch* is one pass over all images.",
    "us/step": "microseconds per step: the median over all runs, preparation not included.",
    "network-step": "one network's share of a step in which several train (`--networks`): its time over their number.",
    "speedup over parent": "how many times as fast as the rung that it climbs from; in brackets the range over "
    "processes, which is no confidence interval.",
    "within noise": "two recordings of one stage may differ as much, so the difference means nothing.",
    "disturbed": "while a process was timed, other work took the CPU or the GPU, or a clock fell.",
    "pace": "the speed of the host's cores beside a process: the time of a small matrix product, before and after it.",
    "oracle": "the same training by NumPy in float64, which every stage is checked against.",
    "judged": "of a process's timed runs, the one that the oracle repeats; the stage learns which one after the last.",
    "control": "the oracle's code with the rounding that a precision permits. Its errors set the limits of checks.",
    "salt": "a number that each run of the ladder draws and keeps secret until its end, so that no stage can know the "
    "parameters of judged runs beforehand.",
    "scale (of a check)": "how far an update goes along the oracle's. With a learning rate 1 % too large, its error is "
    "0.01.",
    "precision (of a check)": "the share of a lower precision's error in an update: 1 where factors were rounded "
    "to fewer bits than the stage declares, near 0 otherwise.",
    "cheat limit": "the least time that any honest program could take on this GPU; a faster stage fails.",
    "floor": "the least time of this design: its own launches, kernels, exchanges and waits, at measured speeds.",
    "GPU time": "how long the GPU was busy, without the waits of a program that waits in every epoch.",
    "under the tool": "while a profiler records. It lengthens the step, so parts are *scaled* to the time without it.",
    "host": "the processor, its memory and the Python program, which give the GPU its orders.",
    "kernel": "a function that runs on the GPU, in *blocks* of *threads*. A *warp* is 32 threads of a block in step.",
    "stream": "a queue of launches, which the GPU takes out in order.",
    "node": "a kernel or copy inside a CUDA graph.",
    "register, shared memory, L2": "memory on the chip: of one thread, of one block, and of the whole GPU.",
    "occupancy": "the threads that a multiprocessor with blocks can hold at once, as a share of the most it can hold.",
    "tensor core": "a unit that multiplies small matrices of short numbers.",
    "GEMM, BLAS": "a matrix product, and a library of them: NVIDIA's are cuBLAS and cuBLASLt. *Split-k* divides the "
    "sum of each result among blocks, and adds the parts.",
    "logits": "the outputs of the last layer, one a class; the *softmax* makes probabilities of them.",
    "launch": "the host's call that starts a kernel, or a CUDA graph of many kernels.",
    "epilogue": "work on a matrix product's result before it is written: bias, ReLU, update.",
    "multiprocessor": "one of the GPU's cores (SM); an H200 has 132. A *block* of threads runs on one.",
    "cluster": "up to 16 blocks that read each other's shared memory. A *hop* is one message between two of them.",
    "grid barrier": "a wait of all blocks of a kernel for each other.",
    "as exact": "no error of the rung is above 4 times eager mode's largest in that precision.",
    "less exact": "one is, but up to 1,000 times, or 16 in tf32 and bf16.",
    "wrong": "one is beyond that, so the rung has no time.",
    "error ratio": "the parameters' distance from the reference, over the median of eager float32 runs that start a "
    "rounding apart.",
    "pay off": "take less time than eager mode for the whole training, preparation included.",
    "recipe": "the shortest set of changes whose whole training takes at most 5 % longer than the fastest as exact.",
    "AMP": "automatic mixed precision: PyTorch multiplies in bfloat16 and keeps float32 weights.",
    "tf32, bf16, fp16": "formats that tensor cores multiply: 11, 8 and 11 significant bits. Sums stay float32.",
}  # fmt: skip


def glossary_lines() -> list[str]:
    """`**term**: meaning`."""
    return [f"**{term}**: {meaning}" for term, meaning in TERMS.items()]
