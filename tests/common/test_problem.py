"""Problems, the arrays that parameters lie in, and files that are written whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from threading import get_ident

import numpy as np
import pytest

from common import arrays
from common.arrays import by_blocks, copied
from common.errors import UsageError
from common.files import atomic_write, explained
from common.problem import Problem, initial_params, network_run


def test_weights_are_uniform_and_biases_zero() -> None:
    params = initial_params(Problem(inputs=784, classes=10, hidden=(25,), seed=3), 7)
    for weight, fan_in in zip(params.weights, (784, 25), strict=True):
        bound = fan_in**-0.5
        assert weight.dtype == np.float32
        assert np.abs(weight).max() <= np.float32(bound)
        shares = np.histogram(weight, bins=5, range=(-bound, bound))[0] / weight.size
        assert np.abs(shares - 0.2).max() < 4 * (0.2 * 0.8 / weight.size) ** 0.5
    assert [bias.tolist() for bias in params.biases] == [[0.0] * 25, [0.0] * 10]


@pytest.mark.parametrize(("inputs", "hidden"), [(5, ()), (5, (33, 31, 7)), (784, (128, 129))])
def test_threads_draw_as_one_generator(inputs: int, hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK_ELEMENTS", 101)  # blocks begin in the middle of 64 bits, too
    problem, run = Problem(inputs, 3, hidden, seed=4), 2**127 + 5
    random = np.random.default_rng((problem.seed, run))
    for layer, weight in zip(problem.layers, initial_params(problem, run).weights, strict=True):
        bound = np.float32(1.0 / np.sqrt(layer.fan_in))
        drawn = random.random((layer.fan_in, layer.fan_out), np.float32)
        assert np.array_equal(weight, drawn * (2 * bound) - bound)


def test_every_run_and_every_seed_has_its_own() -> None:
    drawn = [
        initial_params(Problem(inputs=4, classes=2, seed=seed), run).weights[0].tobytes()
        for seed, run in [(0, 0), (0, 1), (1, 0), (0, 0)]
    ]
    assert len(set(drawn)) == 3
    assert drawn[0] == drawn[3]


def test_several_networks_have_what_each_would_have_alone() -> None:
    problem = Problem(inputs=5, classes=3, hidden=(4,), networks=3, learning_rates=(0.1, 0.2, 0.3))
    stacked = initial_params(problem, 7)
    assert [tensor.shape for tensor in stacked.tensors().values()] == [(3, 5, 4), (3, 4), (3, 4, 3), (3, 3)]
    for network, own in enumerate(stacked.apart()):
        alone = problem.alone(network)
        assert alone == Problem(inputs=5, classes=3, hidden=(4,), learning_rate=problem.learning_rates[network])
        wanted = initial_params(alone, network_run(7, network))
        for name, tensor in wanted.tensors().items():
            np.testing.assert_array_equal(own.tensors()[name], tensor)
    assert network_run(7, 0) == 7
    assert not np.array_equal(stacked.weights[0][0], stacked.weights[0][1])


@pytest.mark.parametrize(("batch", "gpus", "most"), [(8, 1, 8), (8, 2, 4), (7, 2, 4), (7, 3, 3)])
def test_a_gpu_has_its_share_of_a_batch(batch: int, gpus: int, most: int) -> None:
    problem = Problem(5, 3, (4,), batch_size=batch, gpus=gpus)
    assert problem.on_one_gpu == Problem(5, 3, (4,), batch_size=most)


def test_rates_are_as_many_as_networks() -> None:
    with pytest.raises(UsageError, match="networks 2: there are 3 learning rates"):
        Problem(inputs=4, classes=2, networks=2, learning_rates=(0.1, 0.2, 0.3))
    assert Problem(inputs=4, classes=2, networks=2, learning_rate=0.5).rates == (0.5, 0.5)
    with pytest.raises(UsageError, match=r"^gpus 2: divide one network's batches; leave it out with several networks$"):
        Problem(5, 3, gpus=2, networks=2)


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 40, 101])
def test_blocks_are_whole_and_in_order(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK_ELEMENTS", 10)
    found = by_blocks(lambda begin, end: (get_ident(), range(begin, end)), size)
    assert [number for _, block in found for number in block] == list(range(size))
    assert all(0 < len(block) <= 10 for _, block in found)
    assert (get_ident() in {thread for thread, _ in found}) == (0 < size <= 20)  # a small array stays in this thread


def test_an_error_in_a_block_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK_ELEMENTS", 10)
    with pytest.raises(ZeroDivisionError):
        by_blocks(lambda begin, end: 1 // (begin - 70), 100)


@pytest.mark.parametrize("dtype", [None, np.float64])
def test_a_copy_has_the_same_values_in_order(dtype: type | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK_ELEMENTS", 10)
    array = np.asfortranarray(np.arange(6000, dtype=np.float32).reshape(60, 100))
    copy = copied(array, dtype)
    assert np.array_equal(copy, array)
    assert copy.dtype == np.dtype(dtype or np.float32)
    assert copy.flags.c_contiguous
    assert not np.shares_memory(copy, array)


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(("content", "written"), [("a\nµ\n", "a\nµ\n".encode()), (b"\0\r\n", b"\0\r\n")])
def test_the_content_replaces_the_file(tmp_path: Path, content: str | bytes, written: bytes, sync: bool) -> None:
    path = tmp_path / "file.json"
    path.write_text("old")
    atomic_write(path, content, sync=sync)
    assert path.read_bytes() == written
    assert list(tmp_path.iterdir()) == [path]


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def stopped(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("fault", [full, stopped])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, fault: object, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", fault)
    with pytest.raises((OSError, KeyboardInterrupt)) as caught:
        atomic_write(path, "new", sync=True)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    if isinstance(caught.value, OSError):
        assert str(caught.value) == f"[Errno 28] No space left on device: '{path}'"


def test_a_folder_that_is_missing_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "file.json"
    with pytest.raises(FileNotFoundError, match=r"gone/file\.json'$"):
        atomic_write(path, "new")


def test_two_writers_do_not_share_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, replace = tmp_path / "file.json", Path.replace

    def interrupted(temporary: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        atomic_write(path, "second")  # while the first is about to replace the file
        return replace(temporary, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    atomic_write(path, "first")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_what_has_no_file_and_no_room_is_the_output() -> None:
    said = explained(OSError(errno.ENOSPC, "No space left on device"), "go on")
    assert said == "standard output: No space left on device; send it elsewhere, then go on"
