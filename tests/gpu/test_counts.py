"""What each rung claims about its launches, counted on the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from common.problem import Problem, initial_params
from ladder.machine.environment import missing
from ladder.measure.profiled import counted
from ladder.profile import cupti
from ladder.profile.api_names import allocates
from ladder.profile.time_split import waiting_calls
from ladder.profile.trace import Trace
from stages.engine.stage import Stage
from stages.registry import load_all, load_entry, rung
from tests.stages.engine.test_step import random_split

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not cupti.available(), reason="cupti-python is not installed")]

STEPS = 40
TOTALS = "softmax_xent_totals"


def epochs_of(name: str, epochs: Sequence[int], hidden: tuple[int, ...] = ()) -> list[Trace]:
    """What each of these epochs does."""
    from common.cuda.clock import fence

    stage: Stage = load_all()[name].stage
    reason = missing(stage.needs)
    if reason:
        pytest.skip(reason)
    problem = Problem(inputs=49, classes=10, hidden=hidden, batch_size=8)
    trainer = stage.build(problem, random_split(STEPS * 8, inputs=49, classes=10))
    trainer.load_params(initial_params(problem, 0))

    def run_epoch(epoch: int) -> None:
        trainer.run_epoch(epoch)
        fence()

    return [cupti.record([epoch], run_epoch) for epoch in epochs]


def kernels(seen: Trace) -> Counter[str]:
    """How often each kernel ran."""
    return Counter(kernel.name for kernel in seen.kernels)


def calls(seen: Trace, word: str) -> int:
    """How often a function with this word in its name was called."""
    return sum(word in call.name for call in seen.calls)


def waits(seen: Trace) -> int:
    """Calls in which the host waits for the device, the harness's own fence left out."""
    return len(waiting_calls(seen)) - 1


def test_naive_waits_in_every_step_and_async_once_an_epoch() -> None:
    (naive,), (relaxed,) = epochs_of("naive", [0]), epochs_of("async", [0])
    assert kernels(naive) == kernels(relaxed)
    assert len(naive.kernels) == 8 * STEPS
    assert waits(naive) >= STEPS
    assert waits(relaxed) <= 2


def test_sparse_metrics_are_computed_in_every_tenth_epoch() -> None:
    seen = [kernels(trace)[TOTALS] for trace in epochs_of("sparse-metrics", range(20))]
    assert seen == [STEPS if epoch in (9, 19) else 0 for epoch in range(20)]


def test_cudnn_takes_the_softmax() -> None:
    (below,), (seen,) = epochs_of("sparse-metrics", [0]), epochs_of("cudnn-softmax", [0])
    assert kernels(below)["softmax"] == STEPS
    assert kernels(seen)["softmax"] == 0
    assert sum(count for name, count in kernels(seen).items() if "softmax_fw" in name) == STEPS
    assert len(seen.kernels) == len(below.kernels)


@pytest.mark.parametrize("hidden", [(), (16, 16)], ids=str)
def test_a_graph_is_one_launch_of_the_same_kernels(hidden: tuple[int, ...]) -> None:
    for epoch in (0, 9):
        (eager,) = epochs_of("cudnn-softmax", [epoch], hidden)
        (graph,) = epochs_of("cuda-graph", [epoch], hidden)
        assert kernels(graph) == kernels(eager)
        assert calls(graph, "GraphLaunch") == 1
        assert calls(graph, "Launch") == 1
        assert calls(eager, "GraphLaunch") == 0


def test_the_fused_head_is_one_kernel_with_and_without_totals() -> None:
    for epoch in (0, 9):
        (below,), (seen,) = epochs_of("cuda-graph", [epoch]), epochs_of("fused-head", [epoch])
        assert kernels(seen)["softmax_xent"] == STEPS
        assert kernels(seen)[TOTALS] == kernels(seen)["softmax_xent_backward"] == 0
        assert len(seen.kernels) == len(below.kernels) - (2 if epoch == 9 else 1) * STEPS


@pytest.mark.parametrize("hidden", [(), (16, 16)], ids=str)
def test_products_update_the_weights_and_one_kernel_a_layer_the_biases(hidden: tuple[int, ...]) -> None:
    (seen,) = epochs_of("fused-update", [0], hidden)
    assert kernels(seen)["sgd_update"] == kernels(seen)["bias_gradient"] == 0
    assert kernels(seen)["bias_update"] == (len(hidden) + 1) * STEPS


@pytest.mark.parametrize("hidden", [(), (16, 16)], ids=str)
@pytest.mark.parametrize("name", ["alloc-cudamalloc", "alloc-async", "alloc-pool", "alloc-arena"])
def test_ways_to_allocate_differ_in_calls_to_allocators_alone(name: str, hidden: tuple[int, ...]) -> None:
    (below,), (seen,) = epochs_of("sparse-metrics", [0], hidden), epochs_of(name, [0], hidden)
    assert kernels(seen) == kernels(below)
    found = Counter(call.name for call in seen.calls if call.name.startswith("cuda") and allocates(call.name))
    tensors = 2 * (len(hidden) + 1) + 2  # outputs and their gradients; probabilities and the parameters' gradients
    pairs = {"alloc-cudamalloc": ("cudaMalloc", "cudaFree"), "alloc-async": ("cudaMallocAsync", "cudaFreeAsync")}
    assert found == dict.fromkeys(pairs.get(name, ()), tensors * STEPS)


@pytest.mark.parametrize("name", ["alloc-pool", "alloc-arena"])
def test_no_epoch_asks_cuda_for_memory_that_is_kept(name: str) -> None:
    for seen in epochs_of(name, [0, 9]):
        assert not any(allocates(call.name) for call in seen.calls)
        assert calls(seen, "cuLaunchKernelEx") >= STEPS


@pytest.mark.parametrize("name", ["pageable", "pinned", "pinned-overlap", "resident-f32", "resident-u8"])
def test_ways_to_get_a_batch_differ_in_copies_and_expansion_alone(name: str) -> None:
    (below,), (seen,) = epochs_of("sparse-metrics", [0]), epochs_of(name, [0])
    expanded = {"expand_pixels": STEPS} if name == "resident-u8" else {}
    assert kernels(seen) == kernels(below) + Counter(expanded)
    copied = [copy.bytes for copy in seen.copies if copy.direction == "host to device"]
    padded = 52  # numbers an image, which a kernel reads four at a time, and a label beside them
    assert copied == ([] if name.startswith("resident") else [8 * (padded + 1) * 4] * STEPS)


@pytest.mark.parametrize("hidden", [(), (16, 16)], ids=str)
def test_products_add_the_bias_and_take_the_relu(hidden: tuple[int, ...]) -> None:
    (below,), (seen,) = epochs_of("fused-update", [0], hidden), epochs_of("fused-epilogue", [0], hidden)
    gone = {"add_bias": len(hidden) + 1, "relu": len(hidden), "relu_backward": len(hidden)}
    assert {name: kernels(below)[name] for name in gone} == {name: count * STEPS for name, count in gone.items()}
    assert not kernels(seen).keys() & gone.keys()


@pytest.mark.parametrize(("name", "kernels_a_step", "reads"), [("naive", 8, 18), ("async", 8, 1), ("fused-head", 7, 1)])
def test_check_counts_what_a_rung_does(name: str, kernels_a_step: int, reads: int) -> None:
    from common.cuda.clock import fence

    counts = counted(rung(name), Problem(49, 10, (), 16), random_split(17 * 16, 49, 10), fence)
    assert counts is not None
    assert counts.host_reads == reads
    assert counts.kernels_per_step == pytest.approx(kernels_a_step, abs=1)  # cuBLAS may split a sum


def test_the_lab_s_third_starter_has_the_kernels_that_its_page_tells(tmp_path: Path) -> None:
    from common.cuda.clock import fence

    text = (Path(__file__).parents[2] / "examples" / "lab" / "3_fuse_the_head.py").read_text()
    (tmp_path / "on_gpu.py").write_text(text.replace('BASE = "cpu-blas"', 'BASE = "naive"'))
    stage = load_entry(f"{tmp_path / 'on_gpu.py'}:STAGE").stage
    assert stage.below == "naive"
    counts = counted(stage, Problem(49, 10, (), 16), random_split(17 * 16, 49, 10), fence)
    assert counts is not None
    assert (counts.kernels_per_step, counts.host_reads) == (8, 18)
