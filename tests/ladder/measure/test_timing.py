"""How runs are timed, and what is counted and read back."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Literal

import numpy as np
import pytest

from common.problem import Params
from common.trainer import EpochMetrics
from ladder.measure.fetched import ContractError, fetched_metrics, fetched_params
from ladder.measure.profiled import OwnProfile, Sample
from ladder.measure.timing import (
    UNTIMED,
    LateRead,
    Plan,
    TimedRun,
    UntimedRun,
    Validation,
    measure,
    plan_within,
    read_late,
    share_outside,
    timed_run,
    train_on,
)

PARAMS = Params((), ())


class FakeTrainer:
    """A trainer whose epoch takes one second on the host and one on the device, which only the fence waits for."""

    device: Literal["cpu", "gpu"] = "cpu"
    cuda_stream: int | None = None
    detail = ""

    def __init__(self) -> None:
        self.now = 0.0
        self.pending = 0.0
        self.unread = 0.0
        self.log: list[str] = []

    def clock(self) -> float:
        self.log.append("clock")
        return self.now

    def fence(self) -> None:
        self.log.append("fence")
        self.now += self.pending
        self.pending = 0.0

    def load_params(self, params: Params) -> None:
        self.log.append(f"load {params}")
        self.pending += 0.25

    def run_epoch(self, epoch: int) -> None:
        self.log.append(f"epoch {epoch}")
        self.now += 1.0
        self.pending += 1.0

    def last_metrics(self) -> EpochMetrics | None:
        return EpochMetrics(0.5, 0.9) if self.log[-1] == "epoch 1" else None

    def read_params(self) -> Params:
        self.now += self.unread
        self.unread = 0.0
        return PARAMS

    def close(self) -> None:
        raise AssertionError("measure does not own the trainer")


class Marks:
    """Two events on the stream of a trainer."""

    def __init__(self, trainer: FakeTrainer) -> None:
        self._log = trainer.log

    def begin(self) -> None:
        self._log.append("begin")

    def end(self) -> None:
        self._log.append("end")

    def seconds(self) -> float:
        assert self._log[-2:] == ["fence", "clock"]
        return 3.5


def test_a_run_is_timed_from_fence_to_fence_without_its_loading() -> None:
    trainer = FakeTrainer()
    run = timed_run(trainer, "p", 2, fence=trainer.fence, clock=trainer.clock)  # type: ignore[arg-type]
    assert trainer.log == ["clock", "load p", "fence", "clock", "epoch 0", "epoch 1", "fence", "clock"]
    assert (run.loading_s, run.seconds) == (0.25, 4.0)
    assert run.metrics == {1: EpochMetrics(0.5, 0.9)}
    assert run.gpu_seconds is None


def test_what_joules_are_counted_over_ends_with_the_work_and_no_sooner() -> None:
    class Waiting(FakeTrainer):
        def wait(self) -> None:
            self.log.append("wait")

    trainer = Waiting()
    train_on(trainer, [4, 1], trainer.fence)
    assert trainer.log == ["epoch 4", "epoch 1", "wait", "fence"]


def test_a_trainer_that_waits_does_so_once_inside_the_time_before_the_last_mark_and_the_fence() -> None:
    class Waiting(FakeTrainer):
        def wait(self) -> None:
            self.log.append("wait")
            self.now += 5.0

    trainer = Waiting()
    run = timed_run(trainer, PARAMS, 2, fence=trainer.fence, clock=trainer.clock, events=Marks(trainer))
    assert trainer.log[-7:] == ["begin", "epoch 0", "epoch 1", "wait", "end", "fence", "clock"]
    assert trainer.log.count("wait") == 1
    assert (run.loading_s, run.seconds, run.gpu_seconds) == (0.25, 4.0 + 5.0, 3.5)


@pytest.mark.parametrize("before", [0, 1, 2])
def test_an_untimed_run_stands_at_its_place_and_takes_no_time(before: int) -> None:
    trainer, marks, ended = FakeTrainer(), list[str](), list[int]()
    untimed = UntimedRun(
        before,
        5,
        Validation(lambda: EpochMetrics(0.0, 0.0), lambda epoch: False),
        lambda number, _: ended.append(number),
    )
    warmups, runs = measure(
        trainer,
        lambda run: f"params {run}",  # type: ignore[arg-type, return-value]
        Plan(epochs=4, repeats=2, warmups=1),
        metrics_every=1,
        fence=trainer.fence,
        clock=trainer.clock,
        events=Marks(trainer),
        stamp=marks.append,
        untimed=untimed,
    )
    order = [0, 1, 2]
    order.insert(1 + before, UNTIMED)
    assert [entry for entry in trainer.log if entry.startswith("load")] == [f"load params {n}" for n in order]
    assert trainer.log.count("epoch 4") == 1
    assert ([run.seconds for run in (*warmups, *runs)], ended) == ([4.0, 8.0, 8.0], [UNTIMED])
    assert marks == ["begin", "end"] * 3  # the runner is told of timed runs alone
    assert trainer.log.count("begin") == trainer.log.count("end") == 4  # the stage sees the same of every run


def test_reading_is_timed_from_the_end_of_the_run() -> None:
    trainer = FakeTrainer()
    trainer.unread, trainer.now = 3.0, 10.0
    assert read_late(trainer, trainer.clock, ended=8.0) == (PARAMS, 2.0 + 3.0, 0.0)
    assert read_late(trainer, trainer.clock, ended=13.0) == (PARAMS, 0.0, 0.0)


def test_tensors_are_fetched_while_the_clock_runs() -> None:
    trainer = FakeTrainer()

    class Late:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            trainer.now += 4.0
            return np.zeros((1, 1), np.float32)

    trainer.read_params = lambda: Params((Late(),), ())  # type: ignore[arg-type, method-assign]
    assert read_late(trainer, trainer.clock, ended=0.0)[1:] == (4.0, 4.0)


def read(first_s: float, again_s: float, megabytes: int = 0) -> LateRead:
    return LateRead(Params((np.empty(megabytes * 250_000, np.float32),), ()), first_s, again_s)


def test_the_untimed_share_is_the_median_runs() -> None:
    run = TimedRun(1.0, None, {}, loading_s=0.1)
    quick, slow = read(0.1, 0.0), read(5.0, 0.0)
    assert share_outside([run] * 3, [quick, quick, slow]) == pytest.approx(0.2, rel=0.01)
    assert share_outside([run] * 3, [quick, slow, slow]) == pytest.approx(5.1, rel=0.01)
    assert share_outside([run], [read(0.1, 0.0, megabytes=50)]) == pytest.approx(0.1, rel=0.01)  # copying takes 0.1 s
    assert share_outside([run], [read(0.1, 0.0, megabytes=1000)]) == 0.0
    slow_load, large = TimedRun(1.0, None, {}, loading_s=0.4), read(0.0, 0.0, megabytes=100)
    assert share_outside([slow_load], [large]) == pytest.approx(0.2, rel=0.01)
    assert share_outside([slow_load], [large], has_ranks=True) == pytest.approx(0.1, rel=0.01)  # shared, then copied
    hardly = TimedRun(0.0, None, {}, loading_s=0.0001)
    assert share_outside([hardly], [read(0.0, 0.0)]) < 0.1
    # Two fifths of all work are left for the first reading, and a sleep of half a run pretends that reading takes long.
    assert share_outside([TimedRun(1.0, None, {}, 0.0)], [read(0.64, 0.5)]) == pytest.approx(0.54, rel=0.02)


@pytest.mark.parametrize(
    ("budget", "epoch", "planned"),
    [
        (100.0, 0.1, Plan(20, 3, 1)),  # 2 s a run: all fit
        (5.0, 0.1, Plan(20, 2, 1)),  # two runs and the warm-up, which is half of one
        (3.0, 0.1, Plan(20, 1, 1)),
        (2.9, 0.1, Plan(20, 1, 0)),  # one run alone
        (1.95, 0.1, Plan(10, 1, 0)),  # 19 epochs fit, but epochs stay a multiple of ten
        (0.75, 0.1, Plan(7, 1, 0)),
        (0.01, 0.1, Plan(1, 1, 0)),  # at least one epoch
        (1.0, 0.0, Plan(20, 3, 1)),  # a clock that did not move
    ],
)
def test_a_plan_fits_into_its_budget(budget: float, epoch: float, planned: Plan) -> None:
    assert plan_within(budget, epoch, Plan(20, 3, 1), metrics_every=10) == planned


class Waiting(FakeTrainer):
    def wait(self) -> None:
        self.log.append("wait")


def test_each_epoch_of_a_profile_ends_on_the_device() -> None:
    for trainer, between in ((FakeTrainer(), []), (Waiting(), ["wait"])):
        OwnProfile(trainer, Sample((3, 4), (0.5, 0.5)), trainer.fence).warm_up()
        assert trainer.log == ["epoch 3", *between, "fence", "epoch 4", *between, "fence"]


WAY_OUT = "return float32 NumPy arrays, and wait for your results in run_epoch()"


class Reads:
    """A trainer that returns this."""

    def __init__(self, params: Any) -> None:
        self.read_params = lambda: params


class OnADevice:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


def test_a_librarys_array_on_the_host_is_converted() -> None:
    torch = pytest.importorskip("torch")
    (weight,) = fetched_params(Reads(Params((torch.ones(2, 3),), ()))).weights  # type: ignore[arg-type]
    assert (type(weight), weight.dtype.name, weight.shape) == (np.ndarray, "float32", (2, 3))


@pytest.mark.parametrize(
    ("params", "said"),
    [
        (Future[Params](), "read_params() returned concurrent.futures._base.Future, not Params"),
        (Params((Future(),), ()), "weights[0] from read_params() is concurrent.futures._base.Future of object"),  # type: ignore[arg-type]
        (Params((), (np.zeros(3),)), "biases[0] from read_params() is numpy.ndarray of float64"),  # type: ignore[arg-type]
        (Params((OnADevice(),), ()), f"weights[0] from read_params() is {__name__}.OnADevice, which NumPy cannot read"),  # type: ignore[arg-type]
    ],
)
def test_anything_else_is_refused(params: Any, said: str) -> None:
    with pytest.raises(ContractError) as refused:
        fetched_params(Reads(params))  # type: ignore[arg-type]
    assert str(refused.value) == f"{said}; {WAY_OUT}"


@pytest.mark.parametrize("seen", [EpochMetrics("low", 0.5), EpochMetrics(None, 0.5), 0.5])  # type: ignore[arg-type]
def test_metrics_that_are_no_numbers_are_refused(seen: Any) -> None:
    with pytest.raises(ContractError, match=r"^metrics of .*: return EpochMetrics of two numbers$"):
        fetched_metrics(seen)
