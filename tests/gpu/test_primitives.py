"""The primitives on a real GPU: plausible times and rates in the order that no GPU turns round."""

from __future__ import annotations

import math

import pytest

from ladder.machine.environment import missing
from ladder.machine.limits import PRIMITIVES, measure_limits
from ladder.records.limits_record import LimitsRecord

pytestmark = [pytest.mark.gpu, pytest.mark.alone]


@pytest.fixture(scope="module")
def record() -> LimitsRecord:
    return measure_limits()


def test_nothing_is_left_out_that_the_gpu_and_its_libraries_have(record: LimitsRecord) -> None:
    lacking = {p.title: reason for p in PRIMITIVES if (reason := missing(p.needs))}
    refused = {title for title in record.skipped if "16 blocks" in title}  # not every GPU with clusters has them
    assert {
        title: reason for title, reason in record.skipped.items() if title not in refused - lacking.keys()
    } == lacking
    measured = [limit.name for limit in record.limits]
    assert measured == [p.name for p in PRIMITIVES if p.title not in lacking.keys() | refused]


def test_samples_are_positive_and_in_order(record: LimitsRecord) -> None:
    for limit in record.limits:
        assert 0 < limit.min <= limit.median <= limit.max < math.inf, limit.name


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("launch", "launch_and_wait"),
        ("launch_and_wait", "launch_and_read"),
        ("graph_node", "launch_and_wait"),
        ("graph_node_dependent", "graph_node"),
        ("graph_node", "graph_node_full"),
        ("block_barrier", "cluster_barrier_2"),
        ("cluster_barrier_2", "cluster_hop_2"),
        ("cluster_barrier_16", "cluster_hop_16"),
        ("cluster_hop_16", "grid_barrier"),
        ("block_barrier", "l2_load"),
        ("l2_load", "grid_barrier"),
        ("memory_copy", "l2_read"),
        ("memory_update", "memory_read"),
        ("memory_read", "l2_read"),
        ("l2_load", "peer_hop"),
        ("peer_copy", "memory_copy"),
        ("gemm_float32", "gemm_float16"),
        ("gemm_tf32", "gemm_float16"),
    ],
)
def test_what_does_more_takes_longer_and_faster_units_are_faster(record: LimitsRecord, less: str, more: str) -> None:
    lower, upper = record.get(less), record.get(more)
    if lower is None or upper is None:
        pytest.skip(f"{less if lower is None else more} is not measured on this GPU")
    assert lower.median < upper.median
