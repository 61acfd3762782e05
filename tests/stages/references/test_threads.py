"""The number of threads of PyTorch and JAX where there is no GPU: the fastest of 1, 2, 4, ... and all usable."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from common import choice
from common.problem import Problem
from stages.references import jax_scan, jax_threads, thread_trials, torch_compile_cpu, torch_eager, torch_threads
from tests.stages.engine.test_step import random_split

PROBLEM = Problem(inputs=49, classes=10, batch_size=4)


@pytest.fixture
def torch_as_before() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch_threads._fastest.cache_clear()
    yield
    torch_threads._fastest.cache_clear()
    torch.set_num_threads(before)


def chosen(seconds: dict[int, float]) -> int:
    """The number that wins when a step takes so many milliseconds with each, after a slow one in its first turn."""
    slow = dict.fromkeys(seconds, 0.009)
    return thread_trials.fastest_count(
        [*seconds], lambda count: [slow.pop(count, 1e-3 * seconds[count]), 1e-3 * seconds[count]]
    )


@pytest.mark.parametrize(
    ("most", "expected"),
    [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8)), (96, (1, 2, 4, 8, 16, 32, 64, 96))],
)
def test_powers_of_two_and_all_are_tried(most: int, expected: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    assert thread_trials.thread_counts(most) == expected
    monkeypatch.setattr(thread_trials, "usable_cores", lambda: most)
    assert thread_trials.thread_counts() == expected


def test_the_number_with_the_fastest_steps_wins_and_a_tie_takes_fewer() -> None:
    assert chosen({1: 1.0, 2: 1.2}) == 1
    assert chosen({1: 1.0, 2: 0.8}) == 2
    assert chosen({1: 1.0, 2: 0.98}) == 1
    assert chosen({1: 1.0, 2: 0.5, 4: 0.49, 6: 0.6}) == 2
    assert chosen({1: 1.0, 2: 0.6, 4: 0.5, 6: 0.4}) == 6


def test_threads_that_wait_for_busy_cores_lose_although_most_steps_are_quick() -> None:
    steps_s = {1: [80e-6] * 15 + [300e-6], 2: [75e-6] * 15 + [24e-3]}
    assert thread_trials.fastest_count([1, 2], steps_s.__getitem__) == 1


@pytest.mark.parametrize(("hidden", "steps"), [((), 128), ((128, 128, 128), 31), ((4096,), 8)])
def test_short_steps_are_tried_in_long_epochs(hidden: tuple[int, ...], steps: int) -> None:
    assert thread_trials.trial_steps(Problem(784, 10, hidden, batch_size=32 if len(hidden) > 1 else 128)) == steps


def test_numbers_above_a_hopeless_one_are_not_tried() -> None:
    tried = list[int]()

    def steps_s(count: int) -> list[float]:
        tried.append(count)
        return [1.0 if count == 1 else 2.5]

    assert thread_trials.fastest_count([1, 2, 4, 64], steps_s) == 1
    assert set(tried) == {1, 2}


@pytest.mark.parametrize(("step_s", "turns"), [(1e-4, 8), (5e-4, 5), (2e-3, 3), (1.0, 1)])
def test_long_epochs_have_fewer_turns(step_s: float, turns: int) -> None:
    tried = list[int]()

    def steps_s(count: int) -> list[float]:
        tried.append(count)
        return [step_s]

    assert thread_trials.fastest_count([1, 2], steps_s, 128) == 1
    assert tried == [1, 2] * turns


def test_one_thread_needs_no_trial() -> None:
    assert thread_trials.fastest_count([1], lambda count: pytest.fail("tried")) == 1


def test_all_processes_of_a_run_take_the_first_ones_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy moment must not give two processes of one row different numbers; the next run chooses anew."""
    monkeypatch.setattr(choice, "_shared", None)
    first = choice.share_choices({})
    assert chosen({1: 1.0, 2: 0.5}) == 2
    choice.share_choices(first)
    assert chosen({1: 1.0, 2: 5.0}) == 2
    choice.share_choices({})
    assert chosen({1: 1.0, 2: 5.0}) == 1


@pytest.mark.torch
@pytest.mark.parametrize("fastest", [1, 2])
def test_pytorch_trains_with_the_fastest_number(
    fastest: int, torch_as_before: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("on a GPU the number of threads stays as it is")
    tried: list[int] = []

    def steps_s(trainer: object, steps: int) -> list[float]:
        tried.append(torch.get_num_threads())
        return [1.0 if tried[-1] == fastest else 2.0]

    monkeypatch.setattr(torch_threads, "thread_counts", lambda: (1, 2))
    monkeypatch.setattr(torch_threads, "epoch_steps_s", steps_s)
    for _ in range(2):
        trainer = torch_eager.STAGE.build(PROBLEM, random_split(8, 49, 10))
        assert torch.get_num_threads() == fastest
        assert trainer.detail == f"CPU, {fastest} thread{'s' if fastest > 1 else ''}"
    assert tried == [1, 2]  # once a process, and a step as slow as this once for each number


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_the_step_compiled_for_the_cpu_trains(torch_as_before: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from ladder.machine.environment import missing
    from tests.stages.references.test_references import assert_trains, problem_of

    if reason := missing(torch_compile_cpu.STAGE.needs):
        pytest.skip(reason)
    torch.compiler.reset()
    monkeypatch.setattr(torch_threads, "thread_counts", lambda: (1,))
    assert_trains(torch_compile_cpu.STAGE.build, problem_of((17,), 16))
    torch.compiler.reset()


@pytest.mark.torch
def test_a_trial_compiles_no_step_that_it_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from stages.references.torch_common import TorchSetup

    compiled: list[bool] = []
    monkeypatch.setattr(torch_compile_cpu, "compile_steps", lambda *_: lambda batches, due: compiled.append(due))
    setup = TorchSetup(PROBLEM, random_split(8, 49, 10))
    torch_compile_cpu.prepare_trial(setup)
    torch_compile_cpu.prepare(setup)
    assert compiled == [False, False, True]


def test_without_a_compiler_the_compiled_step_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from ladder.machine import environment

    monkeypatch.setenv("CXX", "no-such-compiler")
    assert environment.missing(["c++"]) == "needs a C++ compiler: no-such-compiler is not on the PATH"


@pytest.mark.jax
def test_what_jax_says_is_the_reason_where_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "abacus")
    monkeypatch.setattr(jax_threads, "thread_counts", lambda: (1, 2))
    with pytest.raises(jax_threads.JaxError, match=r"^RuntimeError: Unable to initialize backend 'abacus': Backend"):
        jax_threads._fastest(Problem(49, 10, batch_size=4), jax_scan.STAGE.build)


JAX = """
import pathlib
from common.problem import Problem
from stages.references import jax_scan, jax_threads
from tests.stages.engine.test_step import random_split
jax_threads.thread_counts = lambda: (1, 2)
jax_threads.fastest_count = lambda counts, steps_s: [steps_s(count) for count in counts] and FASTEST
for _ in range(2):
    print(jax_scan.STAGE.build(Problem(49, 10, batch_size=4), random_split(8, 49, 10)).detail)
names = [(task / "comm").read_text() for task in pathlib.Path("/proc/self/task").iterdir()]
print(sum("XLAEigen" in name for name in names))
"""


@pytest.mark.jax
@pytest.mark.parametrize("fastest", [2])
def test_jax_gets_the_fastest_number_before_its_threads_exist(fastest: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != jax_threads.VARIABLE}
    environment["JAX_PLATFORMS"] = "cpu"
    code = JAX.replace("FASTEST", str(fastest))
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True, timeout=300
    )
    said = f"CPU, {fastest} thread{'s' if fastest > 1 else ''}"
    first, second, threads = run.stdout.splitlines()
    assert (first, second) == (said, said)
    assert int(threads) == fastest
