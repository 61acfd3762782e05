"""The worker processes of the oracle's training runs."""

from __future__ import annotations

import math
import os
import pickle
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from common.data.dataset import Dataset, Split
from common.errors import UsageError
from common.oracle import OracleEpoch
from common.problem import Problem
from ladder.records.run import Precision
from ladder.verify import agreement, oracle_runs
from ladder.verify.control import ROUNDINGS
from ladder.verify.oracle_runs import (
    Computed,
    EpochSpread,
    GpuError,
    OracleRun,
    Short,
    Task,
    assembled,
    compute,
    compute_all,
    compute_on_gpu,
    largest_spreads,
    planned,
)
from ladder.verify.short_runs import Errors, ShortRun, ShortTask
from tests.common.strict_arrays import Device
from tests.ladder.harness import small_dataset, small_problem

IMAGES = np.arange(256, dtype=np.uint8).reshape(-1, 1)  # no two alike
SHORT = Short([ShortTask("zeros"), ShortTask(7, 1), ShortTask(8, 3, 3), ShortTask("trained", 3)], ["float32", "tf32"])
LONG = 1_000_000  # epochs, so that a precision has no more controls than it needs


def alone(problem: Problem, dataset: Path, tasks: Sequence[Task]) -> dict[Task, OracleRun]:
    """Each task trained for itself."""
    return {task: compute(problem, dataset, [task], 60.0)[task] for task in tasks}


def test_workers_do_not_import_the_main_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", str(program), raising=False)
    monkeypatch.setattr(main, "__spec__", None)
    monkeypatch.setattr(oracle_runs, "LITTLE_WORK", 0)
    small_dataset().save(tmp_path / "data")
    done = compute_all(small_problem(epochs=1), tmp_path / "data", [0, 1], 60.0, trained=True)
    assert [len(run.epochs) for run in done.runs.values()] == [1, 1]
    assert done.trained is not None
    assert sys.modules["__main__"] is main
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("hidden", "validates", "controls"),
    [
        ((16,), 0, {"float32": 1, "float16": 2}),
        ((16,), 0, {"float32": 1, "tf32": 1, "float16": 1, "bfloat16": 2}),
        ((16,), 1, {"float32": 2, "float16": 2}),
        ((), 1, {"float32": 1, "float16": 1}),
    ],
)
def test_an_mlp_that_validates_or_below_float32_has_two_controls_that_round_alike(
    hidden: tuple[int, ...], validates: int, controls: Mapping[Precision, int]
) -> None:
    problem = small_problem(hidden=hidden, epochs=LONG, validate_every=validates)
    tasks = Counter(one.precision for one in planned(problem, small_dataset(), [0, 1], set(controls)))
    assert tasks.pop(None) == 2
    assert dict(tasks) == controls


@pytest.mark.parametrize(
    ("units", "batch", "steps", "epochs", "controls"),
    [
        (64, 128, 62, 1, 8),  # with two, NumPy failed its training accuracy and distance in one of eight seeds
        (128, 32, 128, 4, 8),  # one refuses 11 % of correct runs: see refused_by_chance
        (128, 32, 256, 4, 4),
        (128, 32, 1875, 20, 1),
    ],
)
def test_a_short_run_has_controls_enough_to_meet_a_unit_at_its_corner(
    units: int, batch: int, steps: int, epochs: int, controls: int
) -> None:
    problem = Problem(784, 10, (units, units, units), batch, 0.254, epochs=epochs)
    split = Split(np.zeros((steps * batch, 784), np.uint8), np.zeros(steps * batch, np.uint8))
    data = Dataset("zeros", False, "a test", {}, (28, 28), 10, split, split)
    assert [one.precision for one in planned(problem, data, [0], {"float32"})] == [None, *["float32"] * controls]
    assert len(planned(problem, data, [0], {"float32"}, own=True)) == 9


def test_a_tiny_mlp_has_more_controls_below_float32() -> None:
    """A unit that flips early changes the answers of more images than a limit of no difference allows."""
    tasks = planned(small_problem(hidden=(16,)), small_dataset(), [0], {"float32", "float16"})
    assert Counter(one.precision for one in tasks) == {None: 1, "float32": 8, "float16": 64}


def test_a_failing_runs_own_controls_meet_a_corner_that_the_shared_ones_missed(tmp_path: Path) -> None:
    """An H200 refused a correct stage here: its loss was 0.0082 off, its accuracy 12 images."""
    problem, data = small_problem(hidden=(16,), batch_size=16, seed=5647), small_dataset()
    run = 252626732143689779223852389776602191811
    data.save(tmp_path / "data")
    shared = compute_all(problem, tmp_path / "data", [run], 60.0, 0, {"float16"}).runs[run]
    own = compute_all(problem, tmp_path / "data", [run], 60.0, 0, {"float16"}, own=True).runs[run]
    assert shared.spread("float16", 1).loss < 0.0005
    assert 0.0082 < own.spread("float16", 1).loss < 0.01
    assert own.spread("float16", 1).accuracy * 512 > 12


def test_a_precision_parts_no_less_than_a_finer_one(tmp_path: Path) -> None:
    problem = small_problem(hidden=(16,), epochs=1)
    small_dataset().save(tmp_path / "data")
    tasks = [Task(0), Task(0, "float32"), Task(0, "tf32"), Task(0, "float16"), Task(0, "bfloat16")]
    done = alone(problem, tmp_path / "data", tasks)
    # This control meets a unit at its corner; the others happen to miss it.
    (kept,) = done[tasks[2]].params
    assert kept is not None
    for weight in kept[0]:
        weight += 1.0
    oracle = assembled(problem, done, IMAGES)[0]
    met = oracle.spread("tf32", 0).apart
    assert met > 1.0
    assert oracle.spread("float16", 0).apart == oracle.spread("bfloat16", 0).apart == met
    assert oracle.spread("float32", 0).apart < 0.01


@pytest.mark.parametrize("hidden", [(), (16,)], ids=str)
def test_an_mlp_may_be_off_by_as_much_as_a_validation_loss_rises(hidden: tuple[int, ...], tmp_path: Path) -> None:
    small_dataset().save(tmp_path / "data")
    problem = small_problem(hidden=hidden, epochs=3)
    done = alone(problem, tmp_path / "data", [Task(0), Task(0, "float32")])
    for run in done.values():
        run.tested[:] = [OracleEpoch(loss, 0.5) for loss in (0.5, 0.4, 0.7)]
    oracle = assembled(problem, done, IMAGES)[0]
    rises = [oracle.spread("float32", epoch).tested_loss * oracle.epochs[0].mean_loss for epoch in range(3)]
    assert rises == pytest.approx([0.0, 0.0, 0.3 if hidden else 0.0], abs=1e-4)


def test_equal_images_may_carry_a_run_as_far_as_each_rounds_the_parameters(tmp_path: Path) -> None:
    problem = small_problem(hidden=(16,), batch_size=16, epochs=2, learning_rate=1e-4)
    small_dataset().save(tmp_path / "data")
    done = alone(problem, tmp_path / "data", [Task(0), Task(0, "float32")])
    differing, equal = (assembled(problem, done, images)[0].spreads["float32"] for images in (IMAGES, IMAGES * 0))
    rounded = problem.steps(len(IMAGES)) * problem.batch_size * 2.0**-24
    for epoch, (narrow, wide) in enumerate(zip(differing, equal, strict=True), 1):
        assert wide.params == pytest.approx(epoch * rounded)
        assert wide.apart == wide.way > 10 * narrow.apart
        assert wide.loss == narrow.loss


def test_a_control_whose_time_ended_counts_on_with_its_last_distance() -> None:
    early, late = [EpochSpread(apart=0.3)], [EpochSpread(apart=0.1), EpochSpread(apart=0.2), EpochSpread(apart=0.5)]
    assert [one.apart for one in largest_spreads([early, late])] == [0.3, 0.3, 0.5]


def test_training_that_exceeds_float32_alone_is_refused_as_that(tmp_path: Path) -> None:
    problem, tasks = small_problem(epochs=1), [Task(0), Task(0, "float32"), Task(0, "bfloat16")]
    small_dataset().save(tmp_path / "data")
    done = alone(problem, tmp_path / "data", tasks)
    done[tasks[2]].epochs = [OracleEpoch(math.nan, 0.1)]  # a bfloat16 stage may still fail where float32 can train
    assert assembled(problem, done, IMAGES)
    done[tasks[1]].epochs = [OracleEpoch(math.nan, 0.1)]
    with pytest.raises(UsageError, match=r"learning rate 0\.1: training diverges in float32; choose a smaller one"):
        assembled(problem, done, IMAGES)


def test_a_large_loss_of_a_few_steps_is_no_divergence(tmp_path: Path) -> None:
    problem = small_problem(batch_size=64, epochs=1, learning_rate=5.0)
    small_dataset().save(tmp_path / "data")
    runs = range(4)
    done = alone(problem, tmp_path / "data", list(map(Task, runs)))
    ends = [min(done[Task(run)].epochs[-1].mean_loss, done[Task(run)].tested[-1].mean_loss) for run in runs]
    assert max(ends) > 2 * math.log(problem.classes)
    assert len(assembled(problem, done, IMAGES)) == len(runs)


@pytest.mark.parametrize(("accuracy", "refused"), [(0.25, True), (0.32, True), (0.33, False), (0.6, False)])
def test_a_large_loss_with_the_answers_of_a_guess_is_one(tmp_path: Path, accuracy: float, refused: bool) -> None:
    end = OracleEpoch(9.0, accuracy)
    done = {Task(0): OracleRun([end], [end], [None])}
    if refused:
        with pytest.raises(UsageError, match=r"even in float64, to a loss of 9 \(a guess has 1\.39\)"):
            assembled(small_problem(epochs=1), done, IMAGES)
    else:
        assert assembled(small_problem(epochs=1), done, IMAGES)


class UnsendableError(MemoryError):
    """Cannot be restored in another process, like CuPy's own."""

    def __init__(self, size: int, total: int) -> None:
        super().__init__(f"out of memory: {size} of {total} bytes")


def on_device(
    problem: Problem, folder: Path, monkeypatch: pytest.MonkeyPatch, product: Any
) -> tuple[dict[Task, OracleRun], Computed]:
    monkeypatch.setitem(sys.modules, "common.cuda.array_module", SimpleNamespace(ArrayModule=Device))
    monkeypatch.setattr(Device, "product", product)
    small_dataset().save(folder)
    return compute_on_gpu(problem, folder, [Task(0), Task(0, "tf32")], 60.0, 0, True, SHORT)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("undefined symbol:\ncublasDgemm"), "RuntimeError: undefined symbol: cublasDgemm"),
        (UnsendableError(3, 2), "UnsendableError: out of memory: 3 of 2 bytes"),
    ],
)
def test_an_error_of_the_gpus_libraries_is_a_failure_in_one_line(
    error: Exception, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(left: object, right: object) -> None:
        raise error

    with pytest.raises(GpuError) as caught:
        on_device(small_problem(epochs=1), tmp_path, monkeypatch, fails)
    assert str(pickle.loads(pickle.dumps(caught.value))) == told


def test_a_library_that_cannot_be_imported_is_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "common.cuda.array_module", None)
    with pytest.raises(GpuError, match="ModuleNotFoundError: "):
        compute_on_gpu(small_problem(epochs=1), tmp_path, [Task(0)], 60.0, 0, False, SHORT)


@pytest.mark.parametrize("wide", [agreement.WIDE, 0])
def test_a_gpu_that_computes_otherwise_ends_the_run(wide: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "WIDE", wide)
    problem = small_problem(epochs=1)
    assert on_device(problem, tmp_path / "right", monkeypatch, lambda left, right: left @ right)
    with pytest.raises(UsageError, match="the float64 oracle on the GPU is not NumPy's"):
        on_device(problem, tmp_path / "wrong", monkeypatch, lambda left, right: 1.001 * (left @ right))


@pytest.mark.parametrize("hidden", [(), (12, 8)])
def test_a_gpu_trains_as_numpy_does(hidden: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small_problem(epochs=1, hidden=hidden)
    done, found = on_device(problem, tmp_path, monkeypatch, np.matmul)
    assert len(done) == 2
    assert {*found.short} == {*SHORT.tasks}
    for task, trained in pickle.loads(pickle.dumps(found.short)).items():
        numpys = task.run(problem, small_dataset().train, found.trained).trained(SHORT.precisions)
        assert trained.reference == numpys.reference
        assert trained.spreads.keys() == numpys.spreads.keys()
        for precision, seen in numpys.spreads.items():
            own = trained.spreads[precision]
            for one, other in ((own.tensors, seen.tensors), (own.lower, seen.lower)):
                assert one == pytest.approx(other, rel=1e-6, abs=1e-9, nan_ok=True)
            own_metrics, metrics = ((errors.scale, errors.loss, errors.accuracy) for errors in (own, seen))
            assert own_metrics == pytest.approx(metrics, rel=1e-6, abs=1e-9, nan_ok=True)
        assert all(np.array_equal(a, b) for a, b in zip(trained.ends.weights, numpys.ends.weights, strict=True))
        assert all(np.array_equal(trained.lower[bits], error) for bits, error in numpys.lower.items())


@pytest.mark.gpu
@pytest.mark.alone  # where a GPU that others use refuses, NumPy trains in its stead
@pytest.mark.parametrize("hidden", [(), (12, 8), (256,)], ids=str)
def test_cupy_trains_short_runs_much_as_numpy_does(hidden: tuple[int, ...], tmp_path: Path) -> None:
    problem, short = small_problem(epochs=1, hidden=hidden), Short(SHORT.tasks, [*ROUNDINGS])
    small_dataset().save(tmp_path)
    _, found = compute_on_gpu(problem, tmp_path, [Task(0)], 60.0, 0, True, short)
    for task in short.tasks:
        numpys = task.run(problem, small_dataset().train, found.trained).trained(short.precisions)
        for precision, spread in found.short[task].spreads.items():
            for name, error in numpys.spreads[precision].tensors.items():
                assert error / 3 <= spread.tensors[name] <= 3 * error


@pytest.mark.parametrize(
    ("error", "has_room_alone"),
    [(UsageError("a control differs"), False), (MemoryError("out of memory"), False), (MemoryError(), True)],
)
def test_a_short_run_that_a_gpu_has_no_room_for_is_tried_alone_and_then_left_to_numpy(
    error: Exception, has_room_alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spread = ShortRun.spread

    def fails(run: ShortRun, precision: Precision) -> Errors:
        if has_room_alone and current_thread() is main_thread():
            return spread(run, precision)
        raise error

    monkeypatch.setattr(ShortRun, "spread", fails)
    with pytest.raises(UsageError) if isinstance(error, UsageError) else nullcontext():
        done, found = on_device(small_problem(epochs=1), tmp_path, monkeypatch, np.matmul)
        spreads = [{*trained.spreads} for trained in found.short.values()]
        assert (len(done), spreads) == (2, 4 * [{*SHORT.precisions}] if has_room_alone else [set()])  # of one update
        left = "it had no room for a short run (MemoryError: out of memory)"
        assert found.not_on_gpu == ("" if has_room_alone else left)


def fails(error: Exception, *_: object) -> None:
    raise error


def ends_there(*_: object) -> None:
    os._exit(1)


@pytest.mark.parametrize(("on_gpu", "why"), [(partial(fails, GpuError("no symbol")), "symbol"), (ends_there, "pool")])
def test_numpy_trains_in_place_of_a_gpu_that_fails(
    on_gpu: object, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_dataset().save(tmp_path)
    monkeypatch.setenv("LADDER_ORACLE", "numpy")
    numpys = compute_all(small_problem(epochs=1), tmp_path, [0], 60.0, trained=True)
    assert (numpys.device, numpys.not_on_gpu) == ("cpu", "LADDER_ORACLE=numpy")
    monkeypatch.setattr(oracle_runs, "why_not_on_gpu", str)
    monkeypatch.setattr(oracle_runs, "compute_on_gpu", on_gpu)
    found = compute_all(small_problem(epochs=1), tmp_path, [0], 60.0, trained=True)
    assert re.fullmatch(rf"it failed there \(.*{why}.*\)", found.not_on_gpu)
    assert (found.device, found.runs[0].epochs) == ("cpu", numpys.runs[0].epochs)
    assert found.trained is not None


def trains_by_numpy(
    problem: Problem, dataset: Path, tasks: list[Task], budget_s: float, _: int, trained: bool, short: Short
) -> tuple[dict[Task, OracleRun], Computed]:
    """As a GPU would, in a process of its own: which one, its failure says."""
    alike = [
        [task for task in tasks if task.precision == precision] for precision in {task.precision for task in tasks}
    ]
    done = {task: run for group in alike for task, run in compute(problem, dataset, group, budget_s).items()}
    params = oracle_runs.trained_params(problem, dataset) if trained else None
    seen = {task: task.run(problem, small_dataset().train, params).trained([]) for task in short.tasks}
    return done, Computed({}, params, "gpu", f"{os.getpid()}" if tasks and tasks[0].precision else "", seen)


@pytest.mark.parametrize(("cores", "apart"), [(16, True), (2, False)])
def test_processes_share_a_gpu_where_cores_are_many(
    cores: int, apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = small_problem(epochs=1, hidden=(5,))
    small_dataset().save(tmp_path)
    numpys = compute_all(problem, tmp_path, [0, 1], 60.0, precisions=["float32"])
    monkeypatch.setattr(oracle_runs, "why_not_on_gpu", str)
    monkeypatch.setattr(oracle_runs, "cores_usable", lambda: cores)
    monkeypatch.setattr(oracle_runs, "_takes_several_processes", lambda: True)
    monkeypatch.setattr(oracle_runs, "compute_on_gpu", trains_by_numpy)
    found = compute_all(problem, tmp_path, [0, 1], 60.0, 0, ["float32"], trained=True, short=SHORT)
    assert bool(found.not_on_gpu) == apart  # a process had the controls alone
    assert {*found.short} == {*SHORT.tasks}
    assert found.trained is not None
    for run in (0, 1):
        assert found.runs[run].epochs == numpys.runs[run].epochs
        assert found.runs[run].spreads == numpys.runs[run].spreads


def test_many_cores_train_a_small_softmax_regression_beside_its_short_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = small_problem(epochs=1)
    small_dataset().save(tmp_path)
    monkeypatch.setattr(oracle_runs, "why_not_on_gpu", str)
    monkeypatch.setattr(oracle_runs, "compute_on_gpu", partial(fails, GpuError("it was asked")))
    asked = partial(compute_all, problem, tmp_path, [0], 60.0, 0, ["float32"], trained=True, short=SHORT)
    monkeypatch.setattr(oracle_runs, "cores_usable", lambda: 16)
    found = asked()
    assert (found.device, found.not_on_gpu) == ("cpu", oracle_runs.SOONER)
    assert {*found.short} == {task for task in SHORT.tasks if task.begin != "trained"} != set()
    assert all({*seen.spreads} == {*SHORT.precisions} for seen in found.short.values())
    assert found.trained is not None
    monkeypatch.setattr(oracle_runs, "cores_usable", lambda: 2)
    assert "it was asked" in asked().not_on_gpu
    monkeypatch.setattr(oracle_runs, "cores_usable", lambda: 16)
    monkeypatch.setattr(oracle_runs, "SMALL_WORK", 0)
    assert "it was asked" in asked().not_on_gpu


def test_a_disagreement_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_dataset().save(tmp_path)
    monkeypatch.setattr(oracle_runs, "why_not_on_gpu", str)
    monkeypatch.setattr(oracle_runs, "compute_on_gpu", partial(fails, UsageError("an update differs")))
    with pytest.raises(UsageError, match="an update differs"):
        compute_all(small_problem(epochs=1), tmp_path, [0], 60.0)
