"""Which edges between captured kernels are programmatic, and which kernels can have such edges."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.cuda.dependent_launch import Chain, Place, waits
from stages.engine.workspace import KERNELS

MAIN, BRANCH = 11, 12


class Capture:
    """A capture as CUDA tells of it: the stream that is enqueued on, and the nodes that the next one depends on."""

    def __init__(self) -> None:
        self.at: Place | None = None
        self.nodes = 0

    def begin(self) -> None:
        self.at = (MAIN, [])

    def node(self) -> None:
        assert self.at is not None
        self.nodes += 1
        self.at = (self.at[0], [self.nodes])

    def launch(self, chain: Chain) -> bool:
        """One of our kernels; whether its edge is programmatic."""
        early = chain.goes_on()
        if self.at is not None:
            self.node()
        chain.extend()
        return early


@pytest.fixture
def capture() -> Capture:
    return Capture()


@pytest.fixture
def chain(capture: Capture) -> Chain:
    return Chain(lambda: capture.at)


def test_a_kernel_that_follows_another_is_its_dependent(capture: Capture, chain: Chain) -> None:
    capture.begin()
    assert [capture.launch(chain) for _ in range(4)] == [False, True, True, True]


def test_nothing_is_outside_of_a_capture_nor_after_one(capture: Capture, chain: Chain) -> None:
    assert [capture.launch(chain) for _ in range(2)] == [False, False]
    capture.begin()
    assert [capture.launch(chain) for _ in range(2)] == [False, True]
    capture.begin()
    assert [capture.launch(chain) for _ in range(2)] == [False, True]


def test_edges_from_what_is_not_ours_are_ordinary(capture: Capture, chain: Chain) -> None:
    capture.begin()
    capture.launch(chain)
    capture.node()  # of a library, or a memset
    assert [capture.launch(chain) for _ in range(2)] == [False, True]


def test_edges_into_a_branch_and_out_of_a_join_are_ordinary(capture: Capture, chain: Chain) -> None:
    capture.begin()
    capture.launch(chain)
    capture.at = (BRANCH, [capture.nodes])
    assert [capture.launch(chain) for _ in range(2)] == [False, True]
    capture.at = (MAIN, [1, capture.nodes])
    assert [capture.launch(chain) for _ in range(2)] == [False, True]


def test_kernels_wait_where_their_file_has_the_words_for_it(tmp_path: Path) -> None:
    assert waits(KERNELS / "plain/softmax.cu")
    assert waits(KERNELS / "tiles/tile_f32.cu")
    assert not waits(KERNELS / "plain/sgd.cu")
    (tmp_path / "own.cu").write_text('extern "C" __global__ void own() {}\n')
    assert not waits(tmp_path / "own.cu")
