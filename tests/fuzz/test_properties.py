"""Properties of all inputs: written data is read back, and values out of range are refused; a short fuzz run."""

from __future__ import annotations

import gzip
import math
import sys
import tempfile
from pathlib import Path
from unittest import mock

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from common.data.idx import parse_idx
from common.errors import UsageError
from common.problem import Problem
from common.trainer import EpochMetrics
from ladder.measure.protocol import JobResult, decoded, encoded
from ladder.records.foreign import visible_in
from ladder.records.run import Check, LossPoint, Metrics, Results, load, save
from tests.fuzz.targets import COUNTS, FILES, run
from tests.reports.sample import replace_stage, unprofiled_results
from tests.seeds import SEED

ROUND = settings(max_examples=60, deadline=None, derandomize=SEED == 0, database=None)
SHAPES = st.one_of(arrays.array_shapes(min_dims=1, max_dims=1), arrays.array_shapes(min_dims=3, max_dims=3))
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)


@ROUND
@given(array=arrays.arrays(np.uint8, SHAPES), gz=st.booleans())
def test_an_idx_file_is_read_back_as_written(array: NDArray[np.uint8], gz: bool) -> None:
    header = np.array([0x800 + array.ndim, *array.shape], ">u4").tobytes()
    raw = header + array.tobytes()
    found = parse_idx(gzip.compress(raw) if gz else raw, "file", array.ndim)
    np.testing.assert_array_equal(found.array, array)


@ROUND
@given(
    what=TEXT,
    errors=st.lists(st.one_of(FINITE, st.none()), max_size=3),
    curve=st.lists(st.tuples(st.integers(1, 10**6), st.one_of(FINITE, st.none())), max_size=3),
    reason=st.one_of(TEXT, st.none()),
)
def test_results_are_read_back_as_saved_with_their_texts_visible(
    what: str, errors: list[float | None], curve: list[tuple[int, float | None]], reason: str | None
) -> None:
    points = [LossPoint(epoch, loss, None) for epoch, loss in curve]
    checks = [Check(what, error, 1.0, error is not None and error <= 1.0) for error in errors]
    run = unprofiled_results()
    changed = replace_stage(run, run.stages[0].name, checks=checks, reason=reason, metrics=Metrics(None, None, points))
    with tempfile.TemporaryDirectory() as folder:
        save(changed, Path(folder) / "results.json")
        assert load(Path(folder)) == msgspec.convert(visible_in(msgspec.to_builtins(changed)), Results)


@ROUND
@given(loss=st.floats(), accuracy=st.one_of(st.floats(), st.integers(-5, 5)), kind=st.sampled_from([float, np.float32]))
def test_a_workers_numbers_arrive_unchanged(loss: float, accuracy: float, kind: type) -> None:
    with np.errstate(over="ignore"):
        sent = EpochMetrics(kind(loss), kind(accuracy))
    found = decoded(encoded(JobResult(metrics={3: sent}))).metrics[3]
    for told, heard in ((sent.mean_loss, found.mean_loss), (sent.accuracy, found.accuracy)):
        assert heard == float(told) or (math.isnan(heard) and math.isnan(told))


@ROUND
@given(
    whole=st.fixed_dictionaries({name: st.integers() for name in ("batch_size", "epochs", "metrics_every", "seed")}),
    rate=st.floats(),
    hidden=st.lists(st.integers(), max_size=3),
)
def test_a_problem_is_accepted_or_refused_in_one_line(whole: dict[str, int], rate: float, hidden: list[int]) -> None:
    seed, others = whole["seed"], [whole[name] for name in ("batch_size", "epochs", "metrics_every")]
    possible = min([*others, *hidden]) >= 1 and seed >= 0 and 0 < rate < math.inf
    if possible:
        problem = Problem(9, 3, tuple(hidden), learning_rate=rate, **whole)  # type: ignore[arg-type]
        assert len(problem.layers) == len(hidden) + 1
        return
    with pytest.raises(UsageError) as refused:
        Problem(9, 3, tuple(hidden), learning_rate=rate, **whole)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("target", "count"), COUNTS.items())
def test_every_input_is_accepted_or_refused_in_one_line(
    target: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(target, count, SEED, tmp_path)
    ours = [module for name, module in sys.modules.items() if name.startswith(("reports.", "ladder."))]
    assert [one.__name__ for one in ours if any(isinstance(value, mock.Mock) for value in vars(one).values())] == []
    assert {path.name for path in tmp_path.iterdir()} <= FILES
