from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from common.data import dataset
from common.errors import MisfitError, UsageError
from common.problem import Problem
from ladder.run import preflight
from ladder.run.preflight import LAUNCHERS, cut, dataset_of, gpu_has_no_room, leaves_to_rank_0, room_for_stages
from ladder.run.session import check_same_data
from stages.engine.recipe import Gemm
from stages.engine.stage import Place, Stage
from stages.engine.workspace import Setup
from stages.registry import load_all
from tests.ladder.harness import NUMPY, Watcher, prepare, small_dataset
from tests.reports import sample
from tests.stages.engine.test_step import random_split
from tests.stages.numpy_parts import RECIPE, HostDevice, NumpyUpdate


def test_max_steps_cuts_the_epoch() -> None:
    dataset = small_dataset()
    assert cut(dataset, 32, None) is dataset
    few = cut(dataset, 32, 3)
    assert (len(few.train.images), len(few.train.labels), len(few.test.images)) == (96, 96, 96)
    assert (few.train.images == dataset.train.images[:96]).all()
    assert (few.test.labels == dataset.test.labels[:96]).all()
    assert len(cut(dataset, 32, 1000).train.images) == 515


def test_a_run_that_counted_its_labels_otherwise_is_not_continued(tmp_path: Path) -> None:
    dataset = small_dataset()
    run = sample.results()
    same = replace(run.problem, dataset_sha256=dataset.sha256, classes=dataset.classes)
    check_same_data(replace(run, problem=same), dataset, tmp_path)
    more = replace(same, classes=dataset.classes + 1)  # the lowest label was no class 0 once
    with pytest.raises(UsageError, match="was measured on"):
        check_same_data(replace(run, problem=more), dataset, tmp_path)


def test_an_estimate_finds_networks_that_do_not_fit_into_gpu_memory() -> None:
    small = Problem(inputs=784, classes=10, hidden=(256,))
    large = Problem(inputs=784, classes=10, hidden=(65536,) * 3)  # 8.6 G parameters twice in float32: 64 GiB
    assert gpu_has_no_room(small, 60000, 8000.0) is None
    assert gpu_has_no_room(large, 60000, 140_000.0) is None
    assert gpu_has_no_room(large, 60000, None) is None
    reason = gpu_has_no_room(large, 60000, 60_000.0)
    assert reason == "needs about 65 GiB of GPU memory, this GPU has 59 GiB; choose smaller layers"
    assert gpu_has_no_room(small, 10_000_000, 24_000.0) is not None  # the images take memory, too


@pytest.mark.parametrize("hidden", [(), (64,), (2000,), (128, 64), (128,) * 5, (60_000,)], ids=str)
@pytest.mark.parametrize(
    ("batch", "networks", "gpus"), [(8, 1, 2), (128, 1, 1), (128, 2, 1), (128, 1, 3), (1 << 20, 1, 1)]
)
def test_the_closest_rung_takes_the_problem(
    hidden: tuple[int, ...], batch: int, networks: int, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.engine.stage.devices", lambda: [SimpleNamespace(name="H100")] * gpus)
    problem = Problem(784, 10, hidden, batch, networks=networks, gpus=gpus)
    stages = {name: entry.stage for name, entry in load_all().items()}
    reasons = {name: preflight.misfit(stage, problem, 40) for name, stage in stages.items()}
    assert all(bool(reasons[name]) == bool(stage.misfit(problem, 40)) for name, stage in stages.items())
    for reason in filter(None, reasons.values()):
        _, hint, closest = reason.partition("Closest rung here: ")
        assert not hint or not reasons[closest.strip("`.")]


def test_the_closest_rung_gives_way_to_the_next_that_takes_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead, fleet = (load_all()[name].stage for name in ("cluster-ahead-fp16", "fleet-grid"))
    wide, widest = Problem(784, 10, (1025,)), Problem(784, 10, (60_000,), networks=2)
    told = "1025 units exceed the limit of 1024. Closest rung here: `persistent-grid`."
    assert preflight.misfit(ahead, wide, 469) == told
    assert preflight.misfit(ahead, wide, 469, told) == told
    cluster = load_all()["persistent-cluster"].stage
    for problem, closest in (
        (Problem(784, 10, (), 900), "divided-batch"),
        (Problem(784, 10, (900,)), "persistent-grid"),
    ):
        assert preflight.misfit(cluster, problem, 66).endswith(f". Closest rung here: `{closest}`.")
    monkeypatch.setattr("stages.fusion.fleet_graph.MOST_ELEMENTS", 1)
    assert preflight.misfit(fleet, widest, 40).endswith(" of shared memory. Closest rung here: `cuda-graph`.")
    monkeypatch.setattr("stages.engine.recipe.Recipe.misfit", lambda *_: "Needs more.")
    assert preflight.misfit(fleet, widest, 40) == "Needs more. The closest rungs do not take it either."


def test_the_closest_rung_is_the_one_below_but_for_a_few() -> None:
    stages = {name: entry.stage for name, entry in load_all().items()}
    assert {name: stage.closest for name, stage in stages.items() if stage.closest != stage.below} == {
        "persistent-cluster": "divided-batch",  # and from there persistent-grid, both far faster than the graph
        "fleet-cluster": "persistent-grid",
        "fleet-grid": "fleet-graph",
        "cluster-ahead-fp16": "cluster-fp16",
        "grid-messages-fp16": "grid-bf16",
        "stationary-epoch": "deferred-epoch",
        "divided-batch-fp16": "grid-bf16",
        "divided-hidden-fp16": "large-batch-early-fp16",
        "ddp-halves": "ddp-peer",
        "ddp-peer": "ddp-step",
    }
    assert {stage.closest for stage in stages.values()} <= {None, *stages}


def test_a_trainer_that_does_not_fit_names_the_closest_rung_unless_its_reason_says_what_to_do() -> None:
    class Refusing(NumpyUpdate):
        def __init__(self, setup: Setup, gemm: Gemm) -> None:
            super().__init__(setup, gemm)
            raise MisfitError(
                "This GPU has too little." if len(setup.tensors.weights) < 3 else "Closest rung here: `a`."
            )

        @classmethod
        def misfit(cls, problem: Problem, steps: int) -> str:
            return "Needs a hidden layer." if problem.is_logistic else ""

    below = Stage.from_recipe("below", "Below", RECIPE, place=Place(HostDevice, ()))
    stage, split = below.climb("above", "Above", update=Refusing), random_split(8, 4, 3)
    for hidden, told in (
        ((), "Needs a hidden layer. Closest rung here: `below`."),
        ((5,), "This GPU has too little. Closest rung here: `below`."),
        ((5, 5), "^Closest rung here: `a`."),  # a file's own
        ((1 << 30,), "kernels' indices; choose a smaller --batch-size or --hidden"),
    ):
        with pytest.raises(MisfitError, match=f"{re.escape(told)}$".replace(r"\^", "^")):
            stage.build(Problem(4, 3, hidden, 8), split)
    assert stage.misfit(Problem(4, 3), 1) == "Needs a hidden layer. Closest rung here: `below`."
    below.build(Problem(4, 3, (), 8), split)


def test_a_stage_that_does_not_fit_into_gpu_memory_is_skipped_without_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ladder.run.preflight.missing", lambda needs: None)
    watcher = Watcher()
    results = prepare(tmp_path, NUMPY, "tests.planted:NEEDY", environment={"gpu": {"memory_mib": 500}}).run(watcher)
    assert [stage.status for stage in results.stages] == ["passed", "skipped"]
    assert results.stages[1].reason is not None
    assert results.stages[1].reason.startswith("needs about 1 GiB of GPU memory, this GPU has 0 GiB")
    assert watcher.jobs == 1


@pytest.mark.parametrize(
    ("gpu_mib", "cores", "host_gib", "stages"),
    [
        (80_000, 8, 128, 16),  # two a core
        (80_000, 64, 128, 32),  # the most
        (80_000, 16, 16, 4),  # half of the host's memory, 2 GiB each
        (8_000, 16, 128, 4),  # 780 MiB by estimate, two and a half times
    ],
)
def test_stages_prepare_side_by_side_as_cores_and_memory_allow(
    gpu_mib: int, cores: int, host_gib: int, stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "cores_usable", lambda: cores)
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": host_gib << 18}.__getitem__)
    assert room_for_stages(Problem(784, 10), 60_000, gpu_mib) == stages


@pytest.mark.parametrize(
    ("launcher", "started", "leaves"),
    [
        ("", (), False),
        ("torchrun", (0, 2, 1), False),
        ("torchrun", (1, 2, 1), True),
        ("srun", (1, 2, 1), True),
        ("srun", (0, 1, 1), False),  # a batch job of one process, which starts the others
        ("torchrun", (1, 3, 1), "torchrun started 3 processes; start 2 on one host, or one alone"),
        ("srun", (0, 2, 2), "srun started 2 processes on several hosts; start 2 on one host"),
    ],
)
def test_below_a_launcher_only_rank_0_runs(
    launcher: str, started: Sequence[int], leaves: bool | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for known, names in LAUNCHERS.items():
        for name, value in zip(names, started if known == launcher else (), strict=False):
            monkeypatch.setenv(name, f"{value}")
    assert not leaves_to_rank_0(gpus=1)
    if isinstance(leaves, bool):
        assert leaves_to_rank_0(gpus=2) is leaves
    else:
        with pytest.raises(UsageError, match=leaves):
            leaves_to_rank_0(gpus=2)


class Downloads(Watcher):
    def download(self, done: int, total: int | None, name: str) -> None:
        """Nothing arrives here."""


@pytest.mark.parametrize(("folder", "notes"), [(None, 1), (Path("digits"), 0)])
def test_only_who_needs_mirrors_hears_that_they_are_slow(
    monkeypatch: pytest.MonkeyPatch, folder: Path | None, notes: int
) -> None:
    watcher = Downloads()

    def slowly(**_: Any) -> dataset.Dataset:
        deadline = time.monotonic() + 60
        while len(watcher.notes) < notes and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(5 * preflight.PATIENCE_S)
        return small_dataset()

    monkeypatch.delenv("LADDER_DATA_DIR", raising=False)
    monkeypatch.setattr(preflight, "PATIENCE_S", 0.01)
    monkeypatch.setattr(dataset, "load_dataset", slowly)
    dataset_of(data_dir=folder, seed=0, observer=watcher)
    assert len(watcher.notes) == notes
