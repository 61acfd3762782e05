"""Seeds go out once each, in order, and only those of the judged run and the first updates are known beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest

from ladder.measure.protocol import FIRST_UPDATE_RUN, RUNS_PER_ROUND
from ladder.measure.seeds import RunSeeds, SeedError
from ladder.processes import seed_server
from ladder.processes.seed_server import SeedServer

JUDGED_SEED = 7


def shared(run: int) -> int:
    return JUDGED_SEED + run


@pytest.fixture
def server() -> Iterator[SeedServer]:
    with SeedServer(shared, parameter_bytes=1000) as server:
        yield server


@pytest.fixture
def seeds(server: SeedServer) -> Iterator[RunSeeds]:
    seeds = RunSeeds(server.address)
    yield seeds
    seeds.close()


def timed_runs(seeds: RunSeeds, runs: int) -> list[int]:
    """Ask for the seeds of all timed runs, as a worker does."""
    drawn = []
    for run in range(runs):
        drawn.append(seeds.timed(run, runs))
        seeds.stamp("begin")
        seeds.stamp("end")
    return drawn


def test_one_timed_run_in_a_random_place_has_the_judged_seed(server: SeedServer) -> None:
    places = set()
    for _ in range(40):
        seeds = RunSeeds(server.address)
        drawn, kept = timed_runs(seeds, 3), seeds.finished()
        seeds.close()
        assert drawn.count(JUDGED_SEED) == 1
        assert sorted(kept) == [0, 1, 2]
        assert kept[0] == server.attempt.judged == drawn.index(JUDGED_SEED)
        assert drawn == server.attempt.seeds
        places.add(kept[0])
    assert places == {0, 1, 2}


def test_no_other_seed_is_given_twice(server: SeedServer) -> None:
    drawn = []
    for _ in range(3):
        seeds = RunSeeds(server.address)
        drawn += [seeds.untimed(), *timed_runs(seeds, 4)]
        seeds.close()
    assert len(set(drawn)) == len(drawn) - 2  # the judged one in each


def test_the_short_runs_have_the_seeds_of_their_numbers(seeds: RunSeeds) -> None:
    assert [seeds.shared(FIRST_UPDATE_RUN + batches) for batches in (1, 17)] == [908, 924]


@pytest.mark.parametrize("number", [0, RUNS_PER_ROUND, -1], ids=["this round's", "the next round's", "before all"])
def test_no_judged_runs_seed_is_told_by_its_number(seeds: RunSeeds, number: int) -> None:
    with pytest.raises(SeedError):
        seeds.shared(number)


@pytest.mark.parametrize("asked", [1, -1, 5])
def test_a_seed_out_of_order_is_refused(seeds: RunSeeds, asked: int) -> None:
    with pytest.raises(SeedError, match="once, in order"):
        seeds.timed(asked, 6)


@pytest.mark.parametrize("marks", [[], ["begin"], ["begin", "end", "begin"]], ids=str)
def test_a_seed_before_the_end_of_the_run_before_is_refused(
    seeds: RunSeeds, marks: list[Literal["begin", "end"]]
) -> None:
    seeds.timed(0, 3)
    for mark in marks:
        seeds.stamp(mark)
    with pytest.raises(SeedError):
        seeds.timed(1, 3)


def test_of_large_parameters_the_judged_run_is_kept_and_some_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_server, "KEPT_BYTES", 3999)
    with SeedServer(shared, parameter_bytes=1000) as server:
        seeds = RunSeeds(server.address)
        timed_runs(seeds, 9)
        kept = seeds.finished()
        seeds.close()
    assert len(kept) == len(set(kept)) == 3
    assert kept[0] == server.attempt.judged


def test_a_worker_that_dies_leaves_the_server_to_the_next(server: SeedServer) -> None:
    RunSeeds(server.address).close()
    seeds = RunSeeds(server.address)
    assert timed_runs(seeds, 1) == [JUDGED_SEED]
    seeds.close()


def test_a_held_worker_waits_for_its_turn_and_hears_how_many_wait_on_the_gpu() -> None:
    with SeedServer(shared, parameter_bytes=1000, held=True) as server, ThreadPoolExecutor(1) as worker:
        seeds = RunSeeds(server.address)
        waiting = worker.submit(seeds.await_turn, on_gpu=True)
        assert server.waits.wait(60)
        assert (waiting.done(), server.waits_on_gpu) == (False, True)
        server.give_turn(3)
        assert (waiting.result(60), server.waits_on_gpu) == (3, False)
        assert seeds.await_turn(on_gpu=True) == 3  # at once
        seeds.close()
