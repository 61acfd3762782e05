"""What `tools/record.py` measures, keeps and ends with; its programs only pretend to measure."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from ladder.options.parsers import parse
from ladder.records.run import load, save
from ladder.study.study_file import read_study
from ladder.study.study_session import options_at
from stages.registry import load_all
from tests.reports.sample import unprofiled_results
from tools import record

RUN = unprofiled_results()
MODEL = record.Recording(Path("examples/torch/mlp.py"), Path("runs/2"))
STUDY = 'stages = ["numpy", "naive"]'


class Tree:
    """A checkout with two studies, whose H200 has a record of a network and of a study."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.gpu, self.log = root, "NVIDIA H200", list[str]()
        self.problem = RUN.problem
        self.bad: dict[str, int] = {}  # the exit status by the last word of a command
        self.commit = "1"
        (root / "tools").mkdir()
        shutil.copy(record.ROOT / record.NETWORKS, root / "tools")
        (root / "experiments").mkdir()
        for name in ("depth", "size"):
            (root / "experiments" / f"{name}.toml").write_text(STUDY)
        for old in ("logistic", "studies/depth"):
            (root / "results/reference/h200" / old / "old").mkdir(parents=True)
        monkeypatch.setattr(record, "_ladder", self.ladder)
        monkeypatch.setattr(subprocess, "call", lambda *_, **__: self.end_of("tests"))
        monkeypatch.setattr(record, "git_state", lambda _: (self.commit, False))
        self.visible(monkeypatch, 1)

    def visible(self, monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
        monkeypatch.setattr(record, "devices", lambda: [None] * gpus)

    def end_of(self, command: str) -> int:
        self.log.append(command.replace(f"{self.root}/", ""))
        return next((status for part, status in self.bad.items() if part in self.log[-1]), 0)

    def ladder(self, cwd: Path, *words: str, env: Mapping[str, str] | None = None, **_: object) -> int:
        on = [f"on GPU {env['CUDA_VISIBLE_DEVICES']}"] if env else []
        if words[0] == "study":
            folder = cwd / words[words.index("--out" if "--out" in words else "--resume") + 1]
            points = words[words.index("--points") + 1].split(",") if "--points" in words else ["run"]
            for point in points:
                (folder / point / "logs").mkdir(parents=True, exist_ok=True)
                gpu = {"name": self.gpu}
                environment = {**RUN.environment, "gpu": gpu}
                run = replace(RUN, problem=self.problem, environment=environment)
                save(run, folder / point / "results.json")
            (folder / "jobs").mkdir(exist_ok=True)
            (folder / "study.json").touch()
        return self.end_of(" ".join([*words, *on]))

    def kept(self, gpu: str = "h200") -> set[str]:
        folder = self.root / "results/reference" / gpu
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() or path.name == "old"}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    return Tree(tmp_path, monkeypatch)


def test_it_names_what_to_commit(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.gpu = "NVIDIA H100 80GB HBM3"
    assert record.main(["logistic", "depth"], tree.root) == 0
    told = capsys.readouterr().out
    folder = "results/reference/h100-80gb-hbm3"
    assert "run_ladder.py readme" in told
    assert f"git add README.md docs {folder}/logistic {folder}/studies/depth\n" in told


def test_every_network_is_measured_before_the_first_record_is_replaced(tree: Tree) -> None:
    assert record.main([], tree.root) == 0
    begin, points = "study tools/networks.toml --out runs/record/networks", ("hidden-none", *record.DEFAULT[1:])
    assert tree.log == [
        "tests",
        *(f"{begin}/{name} --tune-references --points {p}" for name, p in zip(record.DEFAULT, points, strict=True)),
        *(f"report results/reference/h200/{name}" for name in record.DEFAULT),
    ]
    assert tree.kept() == {f"{name}/results.json.gz" for name in record.DEFAULT} | {"studies/depth/old"}
    assert not list((tree.root / "runs").rglob("*.json"))
    assert not [path for path in (tree.root / "results").rglob("*") if path.name in ("logs", "jobs")]


def test_every_study_replaces_its_record_the_longest_first(tree: Tree) -> None:
    (tree.root / "experiments" / "hidden-size.toml").write_text(STUDY)
    assert record.main(["studies"], tree.root) == 0
    assert [line.split()[1] for line in tree.log] == [
        f"experiments/{name}.toml" for name in ("hidden-size", "depth", "size")
    ]
    assert {"studies/depth/study.json", "studies/depth/run/results.json.gz", "logistic/old"} <= tree.kept()
    assert "studies/depth/old" not in tree.kept()


def test_what_is_oldest_is_recorded_first(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, day in (("logistic", 3), ("studies/depth/run", 1), ("studies/size/run", 2)):
        (tree.root / "results/reference/h200" / place).mkdir(parents=True, exist_ok=True)
        save(replace(RUN, created=f"2026-11-0{day}"), tree.root / "results/reference/h200" / place / "results.json")
    monkeypatch.setattr(record, "devices", lambda: [SimpleNamespace(name="NVIDIA H200")])
    monkeypatch.setattr(record, "KNOWN", ("hidden-256", "logistic"))
    assert record.main(["all", "--within", "60", "--rounds", "1"], tree.root) == 0
    asked = [line for line in tree.log if line.startswith("study")]
    assert [Path(line.split()[3]).stem for line in asked] == ["hidden-256", "logistic", "depth", "size"]
    assert all(line.endswith("--rounds 1") for line in asked)


def test_the_plan_has_what_the_records_took_and_the_pace_of_those_measured_anew(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "KNOWN", ("logistic",))
    slow = [replace(stage, compiled_s=7.0) for stage in RUN.stages[:1]] + RUN.stages[1:]
    for place in ("logistic", "studies/depth/run"):
        (folder := tree.root / "results/reference/h200" / place).mkdir(parents=True, exist_ok=True)
        save(
            replace(RUN, seconds=100.0, stages=slow, took_s={"compiling": 1.0} if "depth" in place else {}),
            folder / "results.json",
        )
    known = {kept.name: kept.seconds for kept in record.kept_records(tree.root, "h200")}
    assert known["logistic"] == known["depth"] + 7 > 7
    tree.bad = {"depth": 130}
    monkeypatch.setattr(record, "load", lambda folder: replace(load(folder), seconds=10.0))
    assert record.main(["logistic", "depth"], tree.root) == 130
    monkeypatch.undo()
    monkeypatch.setattr(record, "KNOWN", ("logistic",))
    rows = {line.split()[1]: int(line.split()[7]) for line in record.plan(tree.root, "h200")[2:]}
    taken = load(tree.root / "runs/record/networks/logistic/hidden-none").seconds or 0.0
    assert rows == {"logistic": round(taken), "depth": round(known["depth"] * taken / known["logistic"])}


def test_the_document_has_the_plan_s_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert record.main(["plan"]) == 0
    in_all = int(capsys.readouterr().out.split()[-2])
    assert f"record plan` prints them: {in_all:,} s in all" in (record.ROOT / "docs" / "recordings.md").read_text()


def test_several_gpus_are_used_at_once_and_slurm_needs_none_here(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.visible(monkeypatch, 4)
    assert record.main(["depth"], tree.root) == 0
    assert tree.log[-1].endswith("--out runs/record/depth --tune-references --on local")
    tree.visible(monkeypatch, 0)
    tree.gpu = "NVIDIA H100 80GB HBM3"
    assert record.main(["logistic", "--on", "slurm", "--slurm", "time=60"], tree.root) == 0
    assert tree.log[-2].endswith("--points hidden-none --on slurm --slurm time=60")
    assert tree.kept("h100-80gb-hbm3") == {"logistic/results.json.gz"}
    for gpus in (0, 4):
        tree.visible(monkeypatch, gpus)
        assert record.main(["depth", "--on=slurm"], tree.root) == 0
        assert tree.log[-1].endswith("--out runs/record/depth --tune-references --on=slurm")


def test_records_are_measured_side_by_side_each_on_a_gpu(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.visible(monkeypatch, 2)
    monkeypatch.setattr(record, "local_gpus", lambda: ["3", "5"])
    (tree.root / "experiments" / "pair.toml").write_text(STUDY + "\ngpus = 2")
    cores = os.sched_getaffinity(0)
    assert record.main(["logistic", "hidden-256", "studies", "--rounds", "1"], tree.root) == 0
    begun = [line for line in tree.log if line.startswith("study")]
    assert {line.split()[3] for line in begun} == {
        f"runs/record/{name}" for name in ("networks/logistic", "networks/hidden-256", "depth", "size", "pair")
    }
    assert "--points hidden-256 --rounds 1 on GPU" in " ".join(begun)
    assert {line.split(" on GPU ")[1] for line in begun[:-1]} <= {"3", "5"}
    assert begun[-1] == "study experiments/pair.toml --out runs/record/pair --tune-references --rounds 1"
    assert {"logistic/results.json.gz", "hidden-256/results.json.gz", "studies/pair/study.json"} <= tree.kept()
    assert os.sched_getaffinity(0) == cores


def test_side_by_side_nothing_begins_after_one_that_stops(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.visible(monkeypatch, 2)
    monkeypatch.setattr(record, "local_gpus", lambda: ["0", "1"])
    monkeypatch.setattr(record, "ThreadPoolExecutor", lambda _: ThreadPoolExecutor(1))
    tree.bad, before = {"depth": 130}, tree.kept()
    assert record.main(["studies"], tree.root) == 130
    assert [line for line in tree.log if "size" in line] == []
    assert tree.kept() == before


def test_synthetic_digits_replace_no_record(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree.kept()
    tree.problem = replace(RUN.problem, is_mnist=False)
    assert record.main(["depth"], tree.root) == 2
    assert "runs/record/depth: is not of MNIST" in capsys.readouterr().err
    assert tree.kept() == before


@pytest.mark.parametrize("status", [2, 130])
def test_an_interrupted_recording_replaces_nothing_and_continues(tree: Tree, status: int) -> None:
    tree.bad = {"size": status}
    before = tree.kept()
    assert record.main(["studies"], tree.root) == status
    assert tree.kept() == before
    tree.bad = {}
    assert record.main(["studies"], tree.root) == 0
    assert tree.log[-1] == "study --resume runs/record/size"
    assert sum("depth" in line for line in tree.log) == 1  # it had ended
    tree.bad = {"size": status}
    assert record.main(["studies"], tree.root) == status
    tree.commit = "2"  # another commit asks the study itself, which refuses
    record.main(["depth"], tree.root)
    assert tree.log[-1] == "study --resume runs/record/depth"


def test_what_has_ended_is_kept_without_a_gpu_and_tests_pass_once_a_commit(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.bad = {"size": 130}
    assert record.main(["logistic", "studies"], tree.root) == 130
    assert record.main(["logistic", "size"], tree.root) == 130
    assert tree.log.count("tests") == 1
    tree.visible(monkeypatch, 0)
    assert record.main(["logistic", "depth"], tree.root) == 0
    assert {"logistic/results.json.gz", "studies/depth/study.json"} <= tree.kept()
    assert record.main(["studies"], tree.root) == 2
    tree.visible(monkeypatch, 1)
    tree.commit = "2"
    record.main(["logistic"], tree.root)
    assert tree.log.count("tests") == 2


def test_a_command_is_interrupted_once_the_time_is_up(tmp_path: Path) -> None:
    script = "import sys, time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    sys.exit(130)"
    (tmp_path / "run_ladder.py").write_text(script)
    began = time.monotonic()
    assert record._ladder(tmp_path, until=began + 2) == 130
    assert record._ladder(tmp_path, until=began) == 130
    assert time.monotonic() - began < 30
    (tmp_path / "run_ladder.py").write_text("import os\nos.kill(os.getpid(), 9)")
    assert record._ladder(tmp_path) == 137


def test_a_stage_that_fails_is_recorded_and_a_failed_test_ends_it(tree: Tree) -> None:
    tree.bad = {"depth": 1}
    assert record.main(["depth"], tree.root) == 1
    assert "studies/depth/study.json" in tree.kept()
    tree.bad = {"tests": 1}
    assert record.main([], tree.root) == 3
    assert tree.log[-1] == "tests"


def test_what_cannot_be_recorded_is_refused(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record.main(["logistic", "hidden-9"], tree.root) == 2
    tree.visible(monkeypatch, 0)
    assert record.main([], tree.root) == 2
    said = "record: there is no network, study or model hidden-9\n"
    said += "record: no NVIDIA GPU here; `python -m tools.record cpu` records the CPU\n"
    assert (capsys.readouterr().err, tree.log) == (said, [])


def test_every_network_there_is_can_be_measured() -> None:
    study = read_study(record.ROOT / record.NETWORKS, "", "")
    assert [point.name for point in study.points] == [record.POINTS.get(name, name) for name in record.KNOWN]
    for point in study.points:
        assert options_at(point, load_all()).stages
    for recording in (record.Recording(record.NETWORKS, Path("runs/1"), ("logistic",)), MODEL):
        parse(recording.words(record.ROOT))  # the program has all of its options
    of_a_cpu = read_study(record.ROOT / record.CPU_NETWORKS, "", "")
    assert [point.name for point in of_a_cpu.points] == [record.POINTS.get(name, name) for name in record.DEFAULT]


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA GeForce RTX 4070 Ti", "rtx-4070-ti"),
        ("Tesla T4", "tesla-t4"),
        ("NVIDIA A100-SXM4 (MIG 1g.5gb)", "a100-sxm4-mig-1g-5gb"),
    ],
)
def test_the_folder_has_the_whole_name_of_the_gpu(name: str, slug: str) -> None:
    assert record.slug(replace(RUN, environment={"gpu": {"name": name}})) == slug


def test_a_cpu_is_recorded_in_a_folder_of_its_model(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.visible(monkeypatch, 0)
    environment = {"gpu": {"none": "no driver"}, "cpu": {"model": "AMD EPYC 7R13 CPU @ 2.65GHz", "cores_usable": 2}}
    run = replace(RUN, environment={**RUN.environment, **environment})
    assert record.slug(run) == "amd-epyc-7r13-2-cores"
    assert record.main(["cpu", "logistic"], tree.root) == 0
    assert (
        tree.log[0] == "study tools/cpu_networks.toml --out runs/record/networks --tune-references --points hidden-none"
    )
    assert record.main(["cpu", "hidden-1024"], tree.root) == 2
    tree.visible(monkeypatch, 1)
    assert record.main(["cpu"], tree.root) == 2
