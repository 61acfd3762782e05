"""Run from the checkout's root on the GPU machine: checks the cluster kernel and prints us/step and cycles by phase."""
import os, re, sys, time, tempfile, pathlib, shutil
sys.path.insert(0, os.getcwd())
import numpy as np, cupy
from pathlib import Path
from common.cuda.gpu import Gpu
from common.dataset import load_dataset
from common.oracle import Oracle
from common.problem import Problem, Params, initial_params
from common.trainer import EpochMetrics
from ladder.verify import verify_first_update
from stages.workspace import Setup, Workspace, load_params, read_params
from stages.persistent_cluster import ClusterEpoch
from stages.plain import int32
import stages.persistent_cluster as pcm, stages.workspace as ws

data = load_dataset(data_dir=None, seed=0, offline=True)
print(data.name, data.train.images.shape, flush=True)

def make(problem, split, folder=None):
    old = ws.KERNELS
    if folder: ws.KERNELS = folder
    try:
        gpu = Gpu()
        setup = Setup(problem, gpu, Workspace(gpu, problem, split))
        gpu.zero(setup.tensors.totals)
        return gpu, setup, ClusterEpoch(setup, None, None)
    finally:
        ws.KERNELS = old

def rel(a, b, base=0): return float(np.linalg.norm(a - b) / np.linalg.norm(b - base))

# 1. first updates of 1, 3, 17 batches, several sizes, with metrics
for batch, classes, inputs in ((128, 10, 784), (64, 10, 784), (16, 3, 49), (112, 16, 300)):
    for n in (1, 3, 17):
        if (inputs, classes) == (784, 10): split = data.train.first(n * batch)
        else:
            from tests.stages.test_step import random_split
            split = random_split(n * batch, inputs, classes)
        pr = Problem(inputs=inputs, classes=classes, batch_size=batch)
        gpu, setup, launch = make(pr, split)
        outs = []
        for _ in range(2):
            p0 = initial_params(pr, 1); load_params(setup, p0); gpu.zero(setup.tensors.totals)
            launch(True); gpu.stream.synchronize()
            p = read_params(setup); t = gpu.download(setup.tensors.totals) / (n * batch)
            outs.append((p, t))
        checks = verify_first_update(pr, "float32", n, p0, p, EpochMetrics(float(t[0]), float(t[1])), split.images, split.labels)
        same = all((a == b).all() for a, b in zip(outs[0][0].tensors().values(), outs[1][0].tensors().values()))
        print(f"{inputs}-{classes} batch {batch} x{n}: repeat {'same' if same else 'DIFFERS'};",
              "; ".join(f"{c.what.split(',')[1]} {c.error:.1e}/{c.limit:.1e}{'' if c.passed else ' FAILED'}" for c in checks), flush=True)

# 2. twenty epochs
pr = Problem(inputs=784, classes=10)
gpu, setup, launch = make(pr, data.train)
steps = len(setup.tensors.batches)
p0 = initial_params(pr, 0)
oracle = Oracle(pr, p0)
for _ in range(20): oracle.run_epoch(data.train.images, data.train.labels)
finals = []
for _ in range(2):
    load_params(setup, p0)
    for e in range(20): launch(e % 10 == 9)
    gpu.stream.synchronize()
    finals.append(read_params(setup))
print("20 epochs: weight", rel(finals[0].weights[0], oracle.weights[0]), "bias", rel(finals[0].biases[0], oracle.biases[0]),
      "(limit 2e-5); repeat", all((a == b).all() for a, b in zip(finals[0].tensors().values(), finals[1].tensors().values())), flush=True)

# 3. times: whole, and each kernel alone
def timed(f, n=20):
    f(); gpu.stream.synchronize()
    a, b = cupy.cuda.Event(), cupy.cuda.Event(); r = []
    for _ in range(5):
        a.record(gpu.stream)
        for _ in range(n): f()
        b.record(gpu.stream); b.synchronize(); r.append(cupy.cuda.get_elapsed_time(a, b) * 1e3 / n)
    return min(r), sorted(r)[2]
print("us/step, whole epoch (min, median):", [round(x / steps, 4) for x in timed(lambda: launch(False))])
print("us/step, with totals:", [round(x / steps, 4) for x in timed(lambda: launch(True))])
full = launch._multiply_neighbours
print("us/step, grams alone:", [round(x / steps, 4) for x in timed(lambda: full(steps - 1, pcm.GRAM_THREADS, launch._images, launch._grams, int32(launch._pairs), int32(launch._tiles)))])
launch._multiply_neighbours = lambda *a: None
print("us/step, cluster alone:", [round(x / steps, 4) for x in timed(lambda: launch(False))], flush=True)
t0 = time.perf_counter()
launch._multiply_neighbours = full
for e in range(20): launch(False)
gpu.stream.synchronize(); print("host clock us/step over 20 epochs:", round((time.perf_counter() - t0) * 1e6 / 20 / steps, 4))

# 4. cycles by phase: marks put into a copy of the kernels; each role's lane 0 of warp 0 in every block.
MARKS = {  # file: (text, name); the mark comes after the text
 "backward_warp.cuh": [
   ("wait_for(shared.dlogits_are_in[parity], step / 2 % 2);", "wait dlogits"),
   ("if (tile < epoch.tiles) backward(parity, rate);", "backward"),
   ("if (step + 2 < epoch.steps) publish_weights(parity);", "publish"),
   ("load_features(step + 1);", "load features"),
 ],
 "forward_warp.cuh": [
   ("wait_for_warps(WEIGHTS_ARE_IN + parity, (BACKWARD_WARPS + FORWARD_WARPS) * WARP);", "wait weights"),
   ("if (pair < epoch.pairs) forward(parity);", "forward+send"),
   ("load_images(step + 1);", "load images"),
   ("if (pair == 0 && lane == 0) epoch.prefetch_share(step + PREFETCH, rank);", "prefetch"),
 ],
 "head_warp.cuh": [
   ("wait_for(shared.logits_are_in[parity], step / 2 % 2);", "wait logits"),
   ("add_partial_logits(parity, logits);", "add partial logits"),
   ("wait_for(shared.dlogits_are_in[step % 2], step / 2 % 2);", "wait dlogits"),
   ("if (step > 0) subtract_last_update(step - 1, rate, logits);", "correct"),
   ("add_up(parity, logits);", "add up"),
   ("softmax(logits, with_totals);", "softmax"),
   ("send_dlogits(parity, logits);", "send dlogits"),
   ("load(step + 1);", "load grams"),
 ]}
folder = Path(tempfile.mkdtemp()) / "kernels"
shutil.copytree(ws.KERNELS, folder)
names = []
for file, marks in MARKS.items():
    text = (folder / file).read_text()
    first = len(names)
    for statement, name in marks:
        assert text.count(statement) == 1, (statement, text.count(statement))
        text = text.replace(statement, f"{statement} MARK({len(names)});")
        names.append((file.split("_")[0], name))
    # MARK(i): cycles since the last mark, added up
    text = text.replace("  private:\n", "  public:\n    long long marks[16] = {}, before = 0;\n    __device__ void mark(int i) { const long long now = clock64(); if (before) marks[i] += now - before; before = now; }\n  public:\n", 1)
    for i in range(len(names)): text = text.replace(f"MARK({i});", f"mark({i});")
    (folder / file).write_text(text)
k = (folder / "persistent_cluster.cu").read_text()
OUT = "if (threadIdx.x % WARP == 0 && {when}) for (int i = 0; i < 16; ++i) totals[2 + rank_in_cluster() * 48 + {role} * 16 + i] = (double){who}.marks[i];"
k = k.replace("BackwardWarp(shared, epoch, rows).run();", "BackwardWarp f(shared, epoch, rows); f.run(); " + OUT.format(when="warp == 0", role=0, who="f"))
k = k.replace("ForwardWarp(shared, epoch, rows).run();", "ForwardWarp f(shared, epoch, rows); f.run(); " + OUT.format(when="f.pair == 0", role=1, who="f"))
k = k.replace("head.run(with_totals);", "head.run(with_totals); " + OUT.format(when="warp == BACKWARD_WARPS + FORWARD_WARPS", role=2, who="head"))
(folder / "persistent_cluster.cu").write_text(k)
gpu, setup, launch = make(pr, data.train, folder)
buffer = cupy.zeros(2 + 48 * 16, np.float64)
launch._parameters = (*launch._parameters[:2], buffer)
load_params(setup, p0)
print("marked, us/step:", [round(x / steps, 4) for x in timed(lambda: launch(False))])
got = gpu.download(buffer)[2:].reshape(16, 3, 16) / steps
for role, row in (("backward", 0), ("forward", 1), ("head", 2)):
    print(f"{role}: cycles a step (block 0, 1, 5; mean of blocks)")
    for i, (r, name) in enumerate(names):
        if r == role: print(f"  {name:24s} {got[0,row,i]:7.0f} {got[1,row,i]:7.0f} {got[5,row,i]:7.0f} {got[:,row,i].mean():7.0f}")
    print(f"  {'sum':24s} {got[0,row].sum():7.0f} {got[1,row].sum():7.0f} {got[5,row].sum():7.0f}")

# 5. variants: one line of a copy changed
VARIANTS = [
 ("as it is", "epoch.cuh", "", ""),
 ("backward in one chain of sums", "backward_warp.cuh", "CHAINS = 2;", "CHAINS = 1;"),
 ("no prefetch", "epoch.cuh", "if (step >= steps) return;", "return;"),
 ("prefetch 2 ahead", "epoch.cuh", "PREFETCH = 4;", "PREFETCH = 2;"),
 ("prefetch 8 ahead", "epoch.cuh", "PREFETCH = 4;", "PREFETCH = 8;"),
 ("test_wait", "cluster.cuh", "mbarrier.try_wait.parity", "mbarrier.test_wait.parity"),
 ("head warps load before the softmax's sending", "head_warp.cuh", "            send_dlogits(parity, logits);\n            load(step + 1);", "            load(step + 1);\n            send_dlogits(parity, logits);"),
 # not right, for the bottleneck alone: what a step takes without
 ("WRONG: no images loaded", "forward_warp.cuh", "            load_images(step + 1);\n", ""),
 ("WRONG: no features loaded", "backward_warp.cuh", "            load_features(step + 1);\n", ""),
]
for name, file, old, new in VARIANTS:
    folder = Path(tempfile.mkdtemp()) / "kernels"
    shutil.copytree(ws.KERNELS, folder)
    text = (folder / file).read_text()
    assert not old or text.count(old) == 1, (name, text.count(old))
    (folder / file).write_text(text.replace(old, new) if old else text)
    gpu, setup, launch = make(pr, data.train, folder)
    load_params(setup, p0)
    for e in range(20): launch(False)
    gpu.stream.synchronize()
    got = read_params(setup)
    same = all((a == b).all() for a, b in zip(got.tensors().values(), finals[0].tensors().values()))
    launch._multiply_neighbours = lambda *a: None
    print(f"{name:46s} cluster alone {[round(x / steps, 4) for x in timed(lambda: launch(False))]} us/step; 20 epochs {'the same bits' if same else f'{rel(got.weights[0], oracle.weights[0]):.1e} off the oracle'}", flush=True)
