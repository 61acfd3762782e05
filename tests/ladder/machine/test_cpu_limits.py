"""Times of a step that no program reaches on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.problem import Problem
from ladder.machine import cpu_limits
from ladder.machine.cpu_limits import cpu_cheat_limit
from tests.ladder.harness import NUMPY, Watcher, prepare

SOFTMAX, MNIST_DENSITY = Problem(784, 10), 0.19


@pytest.fixture
def avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_limits, "_operations_a_cycle", lambda: 128)


@pytest.mark.usefixtures("avx512")
@pytest.mark.parametrize("cores", [1, 4])
def test_a_tenth_of_a_microsecond_a_step_is_impossible(cores: int) -> None:
    assert 0.1 < cpu_cheat_limit(SOFTMAX, cores, MNIST_DENSITY) < 1.0


@pytest.mark.usefixtures("avx512")
def test_more_cores_and_fewer_pixels_lower_the_limit_and_more_units_raise_it() -> None:
    limit = cpu_cheat_limit(SOFTMAX, 2, MNIST_DENSITY)
    assert cpu_cheat_limit(SOFTMAX, 64, MNIST_DENSITY) < limit < cpu_cheat_limit(SOFTMAX, 2, 1.0)
    assert cpu_cheat_limit(Problem(784, 10, hidden=(64,)), 2, MNIST_DENSITY) > limit


@pytest.mark.usefixtures("avx512")
def test_where_one_core_is_faster_than_an_exchange_it_is_the_limit() -> None:
    tiny = Problem(4, 2, batch_size=1)
    assert cpu_cheat_limit(tiny, 64, 1.0) == cpu_cheat_limit(tiny, 1, 1.0) < cpu_limits.EXCHANGE_US


@pytest.mark.usefixtures("in_process", "avx512")
def test_a_cpu_stage_passes_it_and_an_impossible_time_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for status in ("passed", "failed"):
        if status == "failed":
            monkeypatch.setattr("ladder.run.bounds.cpu_cheat_limit", lambda *_: 1e6)
        folder = tmp_path / status
        folder.mkdir()
        (stage,) = prepare(folder, NUMPY).run(Watcher()).stages
        assert (stage.status, (stage.reason or "").startswith("cheat limit")) == (status, status == "failed")
        (check,) = (check for check in stage.checks if check.what.startswith("cheat limit"))
        assert check.passed == (status == "passed")
        assert check.error is not None
        assert status == "failed" or 0.0 < check.error < 0.1
