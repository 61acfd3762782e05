"""The cost model, against numbers that were worked out by hand and against what the plain recipe really enqueues."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common import cost
from common.cost import Arithmetic, Design, Rates
from common.problem import Problem
from stages.classic.naive import STAGE
from stages.engine.step import RecipeTrainer
from tests.stages.engine.test_step import random_split
from tests.stages.numpy_parts import HostDevice

LOGISTIC = Problem(inputs=3, classes=2, batch_size=5)
MLP = Problem(inputs=7, classes=3, hidden=(4, 6), batch_size=5)

# One unit of each: an operation's bytes and flops can be read off its time.
RATES = Rates(
    launch_us=4.0,
    node_us=1.0,
    wait_us=3.0,
    read_back_us=10.0,
    exchange_us=0.25,
    memory_bytes=10.0,
    l2_bytes=100.0,
    flops={"float32": 50.0, "float16": 200.0},
    l2_size=1000,
    on_chip_size=1_000_000,
    multiprocessors=4,
)


class RecordingDevice(HostDevice):
    """Kernels that only write down what they were launched with."""

    def __init__(self) -> None:
        self.launched: list[tuple[str, tuple[Any, ...]]] = []

    def kernel(self, source: Path, name: str, **how: Any) -> Callable[..., None]:
        return lambda grid, block, *arguments: self.launched.append((name, arguments))


def enqueued(problem: Problem) -> list[tuple[str, tuple[Any, ...]]]:
    """Every kernel of a step with totals, as the plain recipe launches them."""
    device = RecordingDevice()
    assert STAGE.recipe is not None
    RecipeTrainer(STAGE.recipe, problem, random_split(problem.batch_size, problem.inputs, problem.classes), device)
    return device.launched


@pytest.mark.parametrize("problem", [LOGISTIC, MLP], ids=["logistic", "mlp"])
def test_operations_are_those_that_the_plain_recipe_enqueues(problem: Problem) -> None:
    launched = enqueued(problem)
    step = cost.operations(problem, with_totals=True)
    assert len(step) == len(launched)
    read_and_written = {"add_bias": 0, "relu": 0, "relu_backward": 0, "softmax_xent_totals": 2}  # which tensor
    for operation, (kernel, arguments) in zip(step, launched, strict=True):
        assert operation.name == kernel or (operation.kind, kernel) == ("gemm", "gemm_naive")
        tensors = [argument for argument in arguments if isinstance(argument, np.ndarray) and argument.ndim]
        if kernel == "sgd_update":  # its tensors have gaps, which are none of the problem's parameters
            assert operation.bytes == 3 * 4 * cost.parameters(problem) <= tensors[0].nbytes * 3
            continue
        again = tensors[read_and_written[kernel]].nbytes if kernel in read_and_written else 0
        assert operation.bytes == sum(tensor.nbytes for tensor in tensors) + again, kernel
        if operation.kind == "gemm":
            m, n, k = (int(size) for size in arguments[3:6])
            assert operation.flops == 2 * m * n * k
        else:
            assert operation.flops == 0


def test_parameters_are_weights_and_biases() -> None:
    names = [operation.name for operation in cost.operations(LOGISTIC)]  # without totals
    assert " ".join(names) == (
        "forward add_bias softmax softmax_xent_backward weight_gradient bias_gradient sgd_update"
    )
    design = Design(kernels=8, launches=8, waits=2, read_backs=1)
    assert (cost.launching_floor(design, RATES), cost.waiting_floor(design, RATES)) == (32.0, 16.0)
    assert cost.parameters(LOGISTIC) == 3 * 2 + 2
    assert cost.parameters(MLP) == (7 * 4 + 4) + (4 * 6 + 6) + (6 * 3 + 3)


def test_what_does_not_fit_into_l2_comes_from_memory() -> None:
    assert RATES.moving_us(500) == 5.0
    assert RATES.moving_us(1000) == 10.0
    assert RATES.moving_us(2000) == 100.0  # a thousand bytes from memory; 20 us through L2


def test_a_precision_that_was_not_measured_counts_at_the_highest_rate() -> None:
    assert RATES.computing_us(100, "float32") == 2.0
    assert RATES.computing_us(100, "tf32") == RATES.computing_us(100, "float16") == 0.5


FLOAT16 = (Arithmetic("float16"),)


def test_kernels_cost_the_largest_of_node_bytes_and_arithmetic() -> None:
    # Bytes of forward, add_bias, softmax, its gradient, weight gradient, bias gradient and update are 124, 88, 80, 100,
    # 124, 48 and 96; both products have 60 flops, which take 1.2 us in float32 and 0.3 us in float16.
    assert [operation.bytes for operation in cost.operations(LOGISTIC)] == [124, 88, 80, 100, 124, 48, 96]
    design = Design(kernels=7, launches=7, arithmetic=FLOAT16)
    assert cost.kernels_floor(LOGISTIC, design, RATES) == pytest.approx(1.24 + 1 + 1 + 1 + 1.24 + 1 + 1)
    slower = dataclasses.replace(RATES, flops={"float32": 20.0})
    assert cost.kernels_floor(LOGISTIC, Design(7, 7), slower) == pytest.approx(3 + 1 + 1 + 1 + 3 + 1 + 1)


def test_further_kernels_cost_a_node_each() -> None:
    designs = [Design(kernels, 1, arithmetic=FLOAT16) for kernels in (7, 9.5)]
    floors = [cost.kernels_floor(LOGISTIC, design, RATES) for design in designs]
    assert floors[1] - floors[0] == pytest.approx(2.5)


def test_arithmetic_counts_the_unit_its_products_and_its_multiprocessors() -> None:
    forward, *_, last = (operation for operation in cost.operations(MLP) if operation.name == "forward")
    assert (forward.flops, last.flops) == (2 * 5 * 7 * 4, 2 * 5 * 6 * 3)
    split = Arithmetic("float16", 3, image_products=2)
    assert split.us(forward, RATES) == pytest.approx(2 * 280 / 200)
    assert split.us(last, RATES) == pytest.approx(3 * 180 / 200)
    assert Arithmetic("float16", 3).us(forward, RATES) == pytest.approx(3 * 280 / 200)
    assert Arithmetic("float16", multiprocessors=1).us(last, RATES) == pytest.approx(180 / 200 * 4)
    assert Arithmetic("float16", multiprocessors=8).us(last, RATES) == pytest.approx(180 / 200)
    assert str(split) == "3 x float16 (2 with images)"
    assert str(Arithmetic("float16", multiprocessors=16)) == "float16 on 16 SMs"


def test_of_two_ways_to_multiply_the_faster_counts() -> None:
    split, plain = Arithmetic("float16", 6, image_products=2), Arithmetic("float32")
    forward, *_, last = (operation for operation in cost.operations(MLP) if operation.name == "forward")
    design = Design(3, 1, arithmetic=(split, plain))
    assert cost.computing_floor(MLP, forward, design, RATES) == split.us(forward, RATES) < plain.us(forward, RATES)
    assert cost.computing_floor(MLP, last, design, RATES) == plain.us(last, RATES) < split.us(last, RATES)
    own = dataclasses.replace(design, last_layer=Arithmetic("float32", multiprocessors=2))
    assert cost.computing_floor(MLP, last, own, RATES) == 2 * plain.us(last, RATES)
    assert cost.computing_floor(MLP, forward, own, RATES) == split.us(forward, RATES)


def test_fused_kernels_cost_their_nodes_their_bytes_or_all_arithmetic() -> None:
    assert cost.kernels_floor(LOGISTIC, Design(kernels=5, launches=1), RATES) == 5.0
    whole = Design(kernels=0.01, launches=0.01, weights="kept")
    assert cost.kernels_floor(LOGISTIC, whole, RATES) == 120 / 50
    # Images of 15 bytes twice, logits of 40 and their gradient, weights of 24 read forward, read and written back.
    fast = dataclasses.replace(RATES, node_us=0.01, flops={"float32": 1e9})
    assert cost.traffic(LOGISTIC, Design(5, 1, weights="updated"), fast) == 15 + 24 + 40 + 15 + 40 + 2 * 24
    assert cost.kernels_floor(LOGISTIC, Design(5, 1, weights="updated"), fast) == pytest.approx(1.82)
    assert cost.traffic(LOGISTIC, Design(5, 1), fast) == 182 + 2 * 24  # the gradient is written and read
    assert cost.traffic(LOGISTIC, Design(7, 1), fast) == 124 + 88 + 80 + 100 + 124 + 48 + 96
    assert cost.traffic(LOGISTIC, whole, fast) == 15


def test_a_pass_that_only_reads_counts_at_the_rate_of_reads() -> None:
    design = Design(kernels=3, launches=1, arithmetic=FLOAT16, weights="streamed")
    slow = dataclasses.replace(RATES, memory_bytes=0.1, l2_size=0)
    as_copies = cost.kernels_floor(MLP, design, slow)
    faster = cost.kernels_floor(MLP, design, dataclasses.replace(slow, reading_bytes=0.2))
    assert faster == pytest.approx(as_copies * (1 / 2 + 2) / 3)
    assert cost.kernels_floor(MLP, design, dataclasses.replace(slow, reading_bytes=0.05)) == as_copies


def test_streamed_weights_are_read_once_for_both_uses() -> None:
    updated, streamed = (cost.traffic(MLP, Design(5, 1, weights=weights), RATES) for weights in ("updated", "streamed"))
    planes = cost.traffic(MLP, Design(5, 1, weights="planes"), RATES)
    assert streamed - planes == 4 * (4 * 6 + 6 * 3 + (MLP.inputs * 4)) / 2, "half of the weights, forward"
    assert updated - streamed == 4 * (4 * 6 + 6 * 3) + 4 * 5 * (6 + 3)  # weights and gradients of both hidden inputs
    head = Design(5, 1, weights="streamed", last_layer=Arithmetic("float32"))
    # The last layer: inputs and weights read once, the inputs' gradient and the weights written.
    last = 5 * 4 * (6 + 3 + 3 + 6 + 6) + 4 * 6 * 3 * 3
    assert cost.traffic(MLP, head, RATES) == streamed - last + 2 * 4 * 5 * 6 + 2 * 4 * 6 * 3


def test_each_pass_over_the_weights_costs_what_does_not_stay() -> None:
    # 8 parameters of 4 bytes, of which 20 bytes stay in L2: 12 come from memory in each pass.
    rates = dataclasses.replace(RATES, l2_size=20, on_chip_size=5)
    passes = {weights: cost.weight_transfers(LOGISTIC, Design(5, 1, weights=weights), rates)
              for weights in ("gradients", "updated", "streamed", "kept")}  # fmt: skip
    assert passes == {"gradients": [12] * 6, "updated": [12] * 3, "streamed": [12] * 3, "kept": [7] * 3}
    roomless = dataclasses.replace(rates, l2_size=4)
    assert cost.weight_transfers(LOGISTIC, Design(5, 1, weights="planes"), roomless) == [12, 28, 28]
    design = Design(kernels=3, launches=1, arithmetic=FLOAT16, weights="streamed")
    assert cost.kernels_floor(LOGISTIC, design, rates) == pytest.approx(3.6)
    # Of the MLP's hidden weights, 96 and 72 bytes, a second reading finds 20 bytes in L2.
    mlp = cost.weight_transfers(MLP, Design(5, 1, weights="updated"), rates)
    assert mlp == [4 * 83 - 20] * 3 + [96 - 20, 72 - 20]
    head = Design(5, 1, weights="streamed", last_layer=Arithmetic("float32"))
    assert cost.weight_transfers(MLP, head, rates) == [312, 312 - 72, 312]


def test_kernels_that_start_early_cost_less_where_that_was_measured() -> None:
    early, ordinary = Design(kernels=3, launches=1, are_dependents=True), Design(kernels=3, launches=1)
    rates = dataclasses.replace(RATES, flops={"float32": 500.0}, l2_bytes=1e3, dependent_node_us=0.5)
    assert cost.kernels_floor(LOGISTIC, early, rates) == 1.5
    assert cost.kernels_floor(LOGISTIC, ordinary, rates) == 3.0
    assert cost.kernels_floor(LOGISTIC, early, dataclasses.replace(rates, dependent_node_us=None)) == 3.0


def test_exchanges_cost_what_was_measured_and_otherwise_the_cheapest_of_all() -> None:
    design = Design(kernels=0.01, launches=0.01, exchanges=cost.Exchanges(cluster_hops=3, grid_barriers=2))
    assert cost.exchanging_floor(Design(kernels=1, launches=1), RATES) == 0
    assert cost.exchanging_floor(design, RATES) == 5 * 0.25
    measured = dataclasses.replace(RATES, cluster_hop_us=0.5, grid_barrier_us=1.0)
    assert cost.exchanging_floor(design, measured) == 3.5


def test_gradients_travel_to_another_gpu_after_all_products_and_beside_one_kernel() -> None:
    exchanges = cost.Exchanges(peer_bytes=30)
    fused, plain = (Design(kernels=count, launches=1, exchanges=exchanges) for count in (3, 8))
    linked = dataclasses.replace(RATES, flops={"float32": 500.0}, l2_bytes=1e3, peer_hop_us=0.5, peer_bytes=10.0)
    unlinked = dataclasses.replace(linked, peer_hop_us=None)
    assert [cost.kernels_floor(LOGISTIC, fused, one) for one in (unlinked, linked)] == [3.0, 2 + 3.5]
    slow = dataclasses.replace(linked, flops={"float32": 10.0})
    assert cost.kernels_floor(LOGISTIC, fused, slow) == 12 + 3.5
    of_plain = [cost.kernels_floor(LOGISTIC, plain, one) for one in (unlinked, linked)]
    assert of_plain[1] - of_plain[0] == 3.5 - 1


def test_the_cheat_limit_is_work_and_one_exchange() -> None:
    # 15 bytes of pixels take 0.15 us, 120 flops at 200 per us 0.6 us; alone, a quarter of the chip would take 2.4 us.
    assert cost.cheat_limit(LOGISTIC, "float32", RATES) == pytest.approx((0.6 + 0.25) / cost.HEADROOM)
    slow = dataclasses.replace(RATES, exchange_us=5.0)  # one multiprocessor needs no exchange
    assert cost.cheat_limit(LOGISTIC, "float32", slow) == pytest.approx(2.4 / cost.HEADROOM)


def test_parameters_that_do_not_fit_on_the_chip_are_read_and_written() -> None:
    crowded = dataclasses.replace(RATES, on_chip_size=12, flops={"float16": 1e9}, multiprocessors=10**12)
    # 8 parameters are 32 bytes in float32, 20 too many, and 16 in bfloat16, 4 too many; beside 15 bytes of pixels.
    assert cost.cheat_limit(LOGISTIC, "float32", crowded) == pytest.approx((0.55 + 0.25) / cost.HEADROOM)
    assert cost.cheat_limit(LOGISTIC, "bfloat16", crowded) == pytest.approx((0.23 + 0.25) / cost.HEADROOM)


def test_no_floor_of_a_design_lies_below_the_cheat_limit() -> None:
    for problem in (LOGISTIC, MLP, Problem(784, 10), Problem(784, 10, (256,))):
        limit = cost.cheat_limit(problem, "float32", RATES)
        for kernels in (1, len(cost.operations(problem)), 40):
            assert limit <= cost.kernels_floor(problem, Design(kernels, 1), RATES)
