"""Processes that come from a fork server: what they share, and what they do not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ladder.measure.protocol import JobResult
from ladder.processes import launcher
from ladder.processes.fork_servers import ForkServer, ForkServers, family
from ladder.run import runner
from tests.ladder.harness import NUMPY, Watcher, prepare


@pytest.fixture
def fork_server(tmp_path: Path) -> Iterator[ForkServer]:
    begun = ForkServer((), tmp_path / "logs" / "imports.log")
    yield begun
    begun.close()


@pytest.mark.parametrize(
    ("needs", "name"),
    [
        ((), "numpy"),
        (("cuda",), "cuda"),
        (("cuda", "cublas", "sm_90"), "cuda"),
        (("torch",), "torch"),
        (("torch-cuda",), "torch"),
        (("jax",), None),
    ],
)
def test_stages_that_import_alike_share_a_fork_server(needs: tuple[str, ...], name: str | None) -> None:
    assert family(needs) == name


def test_each_process_is_a_new_one_and_a_failed_one_leaves_the_fork_server_as_it_was(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        assert fork_server.run(tmp_path / name, tmp_path / f"{name}.log", 60) == 1
        assert f"No such file or directory: '{tmp_path / name / 'job.json'}'" in (tmp_path / f"{name}.log").read_text()


def test_a_fork_server_that_has_ended_says_so(fork_server: ForkServer, tmp_path: Path) -> None:
    fork_server.close()
    assert fork_server.run(tmp_path, tmp_path / "log", 60) is None


def test_nothing_is_measured_while_a_fork_server_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = []
    wait = ForkServer.wait

    def waited(fork_server: ForkServer) -> None:
        wait(fork_server)
        ready.append(fork_server)

    monkeypatch.setattr(ForkServer, "wait", waited)
    with ForkServers([(), ()], tmp_path / "logs", 0) as fork_servers:
        assert ready == [fork_servers.of(())]
        assert fork_servers.of(("jax",)) is None


def test_those_of_the_first_two_rounds_import_at_once_and_nothing_is_measured_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[ForkServer] = []
    ready: list[ForkServer] = []
    at_once: list[int] = []
    begin, wait, job = ForkServer.__init__, ForkServer.wait, launcher.run_job

    def begins(fork_server: ForkServer, needs: Iterable[str], log: Path) -> None:
        begun.append(fork_server)
        begin(fork_server, needs, log)

    def waited(fork_server: ForkServer) -> None:
        wait(fork_server)
        ready.append(fork_server)

    def measured(*job_and_more: Any, **more: Any) -> JobResult:
        assert set(begun) == set(ready)
        at_once.append(len(begun))
        return job(*job_and_more, **more)

    monkeypatch.setattr(ForkServer, "__init__", begins)
    monkeypatch.setattr(ForkServer, "wait", waited)
    monkeypatch.setattr(runner, "run_job", measured)
    prepare(tmp_path, NUMPY, rounds=3).run(Watcher())
    assert at_once == [2, 2, 3]


def test_without_its_fork_server_a_stage_is_measured_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = ForkServers.of

    def ended(fork_servers: ForkServers, needs: tuple[str, ...]) -> ForkServer | None:
        found = of(fork_servers, needs)
        assert found is not None
        found.close()
        return found

    monkeypatch.setattr(ForkServers, "of", ended)
    (stage,) = prepare(tmp_path, NUMPY).run(Watcher()).stages
    assert stage.status == "passed"


def test_stages_of_a_round_come_from_one_process_and_rounds_from_different_ones(tmp_path: Path) -> None:
    prepare(tmp_path, "tests.planted:PARENT", "tests.planted:PARENT_TOO", rounds=2).run(Watcher())
    parents = [
        [(tmp_path / "logs" / f"{name}.{round_}.log").read_text() for name in ("parent", "parent-too")]
        for round_ in (1, 2)
    ]
    assert parents[0][0] == parents[0][1]
    assert parents[1][0] == parents[1][1]
    assert parents[0][0] != parents[1][0]


def test_a_stage_that_fails_after_a_fork_is_measured_in_a_process_of_its_own_and_so_are_those_after_it(
    tmp_path: Path,
) -> None:
    results = prepare(tmp_path, "tests.planted:PARENT", "tests.planted:FORKED", "tests.planted:PARENT_TOO").run(
        Watcher()
    )
    assert [stage.status for stage in results.stages] == ["passed"] * 3
    first, forked, after = ((tmp_path / "logs" / f"{stage.name}.1.log").read_text().split() for stage in results.stages)
    assert str(os.getpid()) not in first
    assert set(forked) == set(after) == {str(os.getpid())}


def test_after_one_that_hangs_the_ladder_goes_on(tmp_path: Path) -> None:
    results = prepare(tmp_path, "tests.planted:HANGS", NUMPY, timeout_s=5.0).run(Watcher())
    assert [stage.status for stage in results.stages] == ["crashed", "passed"]
