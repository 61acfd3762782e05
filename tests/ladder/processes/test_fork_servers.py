"""Workers forked by fork servers: what they share, what they do not, and what happens when a fork server fails."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from ladder.processes.fork_servers import ForkServer, ForkServerLostError, ForkServers, import_group
from tests.ladder.harness import NUMPY, Watcher, prepare


@pytest.fixture
def fork_server(tmp_path: Path) -> Iterator[ForkServer]:
    server = ForkServer((), tmp_path / "logs" / "imports.log")
    yield server
    server.close()


def code_of(server: ForkServer, folder: Path) -> int | None:
    """The exit code of a worker in this folder, with a log beside it; None if none could be forked."""
    worker = server.start(folder, folder.with_suffix(".log"))
    return worker.wait(60) if worker else None


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
def test_stages_with_the_same_libraries_share_a_fork_server(needs: tuple[str, ...], name: str | None) -> None:
    assert import_group(needs) == name


def test_every_worker_is_new_and_a_failed_one_leaves_the_fork_server_running(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        assert code_of(fork_server, tmp_path / name) == 1
        assert f"No such file or directory: '{tmp_path / name / 'job.json'}'" in (tmp_path / f"{name}.log").read_text()


def test_two_threads_get_their_own_workers(
    fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compilers and held workers start at once, while the fork server still imports: each answer has one reader."""
    answer, reading = ForkServer._answer, []

    def alone(self: ForkServer, timeout_s: float) -> tuple[int, bytes] | None:
        reading.append(threading.get_ident())
        assert len(set(reading)) == 1
        try:
            return answer(self, timeout_s)
        finally:
            reading.pop()

    monkeypatch.setattr(ForkServer, "_answer", alone)
    with ThreadPoolExecutor(2) as pool:
        codes = pool.map(lambda name: code_of(fork_server, tmp_path / name), "abcd")
    assert list(codes) == [1] * 4


def test_a_compiler_that_initialises_cuda_is_left_to_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch/__init__.py", "torch/_dynamo.py", "torch/_inductor/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    initialises = "from common.cuda import driver\ndriver.initialised = lambda: True\n"
    (tmp_path / "torch/_inductor/compile_fx.py").write_text(initialises)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = ForkServer(("torch-cuda",), tmp_path / "logs" / "imports.log")
    try:
        assert code_of(server, tmp_path / "work") == 1
    finally:
        server.close()


def test_an_ended_fork_server_returns_none(fork_server: ForkServer, tmp_path: Path) -> None:
    fork_server.close()
    assert code_of(fork_server, tmp_path / "work") is None


def test_a_fork_server_that_ends_beside_its_worker_is_no_missing_one(fork_server: ForkServer, tmp_path: Path) -> None:
    fork_server.wait()
    (tmp_path / "work").mkdir()
    os.kill(fork_server._process.pid, signal.SIGSTOP)
    threading.Timer(0.2, os.kill, [fork_server._process.pid, signal.SIGKILL]).start()
    with pytest.raises(ForkServerLostError, match="its fork server ended while it ran: a stage must leave other"):
        code_of(fork_server, tmp_path / "work")


def test_nothing_is_measured_while_a_fork_server_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = []
    wait = ForkServer.wait

    def waited(fork_server: ForkServer) -> None:
        wait(fork_server)
        ready.append(fork_server)

    monkeypatch.setattr(ForkServer, "wait", waited)
    with ForkServers([(), ()], tmp_path / "logs", 0) as fork_servers:
        assert ready == [fork_servers.for_needs(())]
        assert fork_servers.for_needs(("jax",)) is None


def test_a_stage_without_its_fork_server_is_still_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = ForkServers.for_needs

    def ended(fork_servers: ForkServers, needs: tuple[str, ...]) -> ForkServer | None:
        found = of(fork_servers, needs)
        assert found is not None
        found.close()
        return found

    monkeypatch.setattr(ForkServers, "for_needs", ended)
    (stage,) = prepare(tmp_path, NUMPY).run(Watcher()).stages
    assert stage.status == "passed"


def test_stages_of_a_round_share_a_parent_process_and_rounds_do_not(tmp_path: Path) -> None:
    prepare(tmp_path, "tests.planted:PARENT", "tests.planted:PARENT_TOO", rounds=2).run(Watcher())
    parents = [
        [(tmp_path / "logs" / f"{name}.{round_}.log").read_text() for name in ("parent", "parent-too")]
        for round_ in (1, 2)
    ]
    assert parents[0][0] == parents[0][1]
    assert parents[1][0] == parents[1][1]
    assert parents[0][0] != parents[1][0]


def test_after_a_failure_in_a_fork_that_stage_and_later_ones_run_in_started_processes(tmp_path: Path) -> None:
    results = prepare(tmp_path, "tests.planted:PARENT", "tests.planted:FORKED", "tests.planted:PARENT_TOO").run(
        Watcher()
    )
    assert [stage.status for stage in results.stages] == ["passed"] * 3
    first, forked, after = ((tmp_path / "logs" / f"{stage.name}.1.log").read_text().split() for stage in results.stages)
    assert len(set(first) | set(forked) | set(after)) == 3  # the fork server, and a keeper for each started process
    assert len(set(forked)) == len(set(after)) == 1


def test_a_stage_that_ends_its_keeper_is_measured_in_a_started_process(tmp_path: Path) -> None:
    stage, numpy = prepare(tmp_path, "tests.planted:KILLS_ITS_KEEPER", NUMPY).run(Watcher()).stages
    assert (stage.status, numpy.status) == ("passed", "passed")
    assert stage.retries == ["round 1: its fork server ended while it ran: a stage must leave other processes alone"]


@pytest.mark.torch
def test_what_a_stage_does_not_need_stands_still_and_is_imported_afterwards(tmp_path: Path) -> None:
    needs = ((), ("torch",))
    with closing(ForkServers(needs, tmp_path / "logs", 0)) as servers:
        own, other = (servers.for_needs(each) for each in needs)
        assert own is not None
        assert other is not None
        with servers.stopped_but_for(()):
            assert code_of(own, tmp_path / "no job") == 1
            with pytest.raises(subprocess.TimeoutExpired):
                other._answer(0.0)
            states = [Path(f"/proc/{each._process.pid}/stat").read_text().rsplit(") ")[1][0] for each in (own, other)]
            assert states[0] != "T"
            assert states[1] == "T"
        assert other._answer(60.0) == (0, b"ready")
