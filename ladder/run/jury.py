"""The judges of the networks that train together, mostly of one: each judges one network, by an oracle of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean

import msgspec
import numpy as np

from common.arrays import keep_freed_memory
from common.cost import parameters
from common.data.dataset import Dataset
from common.errors import UsageError
from common.oracle import evaluate_all
from common.problem import SEED_BITS, Params, Problem, initial_params, network_run
from ladder.measure.protocol import Job, JobResult, load_params, run_file, save_params
from ladder.processes.seed_server import JUDGED_RUN, Attempt
from ladder.records.run import Check, OracleRecord, Precision
from ladder.run.judge import TRAINED, Judge, Judged, Spreads
from ladder.verify.gates import by_own_controls, depends_on_controls, worst_of
from ladder.verify.oracle_runs import (
    NO_SHORT,
    Short,
    compute_all,
    compute_in_gpus_process,
    largest_spreads,
    trained_params,
)
from ladder.verify.other_runs import RunEnd, verify_networks

ORACLE_BUDGET_S = 60.0
LARGE = 500_000  # parameters, from which on NumPy's short runs take longer than a GPU's process to start
MOST_JUDGED = 4  # networks; of more, those of the lowest and highest rate, and two that are drawn in every round


class Jury:
    """Judges a problem's networks. Of several, which are judged follows from the salt: no stage knows it."""

    def __init__(self, problem: Problem, dataset: Dataset, salt: int, curve_steps: int, *, timed: bool):
        keep_freed_memory()  # judging trains as well
        self.problem, self.dataset, self.salt = problem, dataset, salt
        self.steps = problem.steps(len(dataset.train.images))
        """Of an epoch."""
        self._curve_steps = curve_steps
        self._judge_of = partial(Judge, problem, dataset, salt, curve_steps, timed=timed)
        self._first = self._judge_of()
        self._judges = {0: self._first}
        self._spreads: dict[Problem, Spreads] = {}
        self._trained: Params | None = None
        self._attempts = Counter[tuple[int, str]]()
        self._with_controls = set[tuple[int, Precision]]()  # runs that as many controls as may be have trained

    @property
    def has_trained(self) -> bool:
        """Whether any oracle is trained."""
        return bool(self._spreads)

    def number(self, round_: int, run: int, own: str = "") -> int:
        """The number of a run for `initial_params`; the judged one of a user's stage, named by `own`, is its alone."""
        return self._first.number(round_, run, own)

    def handed_out(self, round_: int, run: int, own: str = "") -> int:
        """The same for a process: each further attempt of a user's stage in a round has a judged run of its own.

        Else the first attempt could note which runs it had, and the second would know the one that it has again.
        """
        if run == JUDGED_RUN and own:
            self._attempts[round_, own] += 1
            own += f" {attempt}" if (attempt := self._attempts[round_, own]) > 1 else ""
        return self.number(round_, run, own)

    def judged(self, round_: int) -> list[int]:
        """The networks that are judged in a round."""
        by_rate = sorted(range(self.problem.networks), key=self.problem.rates.__getitem__)
        if len(by_rate) > MOST_JUDGED:
            drawn = Random(f"{self.salt} {round_}").sample(by_rate[1:-1], MOST_JUDGED - 2)
            by_rate = [by_rate[0], *drawn, by_rate[-1]]
        return sorted(by_rate)

    def untrained(self, rounds: Iterable[int], own: Collection[str] = ()) -> list[int]:
        """The judged runs of these rounds, and of these stages of the user's, that no oracle has trained.

        There is one for each network.
        """
        return [run for round_ in rounds for judge in self._of(round_) for run in judge.untrained([round_], own)]

    def train(self, untrained: list[int], scratch: Path, precisions: set[Precision], job: Job | None = None) -> None:
        """Train the oracles for these run numbers: those of one learning rate together, with their controls once.

        A GPU trains the short runs of a job beside them.
        """
        groups: dict[Problem, list[int]] = {}
        for run in untrained:
            groups.setdefault(self._judges[run >> SEED_BITS].problem, []).append(run)
        for problem, runs in groups.items():
            first, budget_s = problem not in self._spreads, ORACLE_BUDGET_S / len(groups)
            arguments = (problem, scratch / "dataset", runs, budget_s, self._curve_steps)
            short = self._short(problem, job, precisions) if job else NO_SHORT
            done = compute_all(*arguments, precisions if first else set(), trained=self._trained is None, short=short)
            spreads = self._spreads.setdefault(problem, done.runs[runs[0]].spreads)
            for run in runs:
                self._judges[run >> SEED_BITS].adopt(done, [run], spreads)
            if done.trained is not None:
                self._start_from(done.trained, scratch)

    def train_start(self, scratch: Path, job: Job, precisions: Collection[Precision]) -> None:
        """Train the parameters that later updates of every network are judged from, as the first network's judge.

        A GPU trains the short runs of a job beside them, if the network is large.
        """
        problem, dataset, computed = self._first.problem, scratch / "dataset", None
        if parameters(problem) >= LARGE:
            short = self._short(problem, job, precisions)
            computed = compute_in_gpus_process(problem, dataset, [], 0.0, 0, True, short)
        if isinstance(computed, tuple):
            for judge in self._of(job.round):
                judge.adopt_short(computed[1].short if judge.problem == problem else {})
            trained = computed[1].trained
        else:
            with np.errstate(all="ignore"):  # divergence is reported in one line
                trained = trained_params(problem, dataset)
        assert trained is not None
        self._start_from(trained, scratch)

    def _short(self, problem: Problem, job: Job, precisions: Collection[Precision]) -> Short:
        """The short runs of the networks with this problem."""
        tasks = [task for judge in self._of(job.round) if judge.problem == problem for task in judge.short_tasks(job)]
        return Short(list(dict.fromkeys(tasks)), precisions, self._trained)

    def _start_from(self, trained: Params, scratch: Path) -> None:
        """Judge later updates from these parameters, and leave them beside the data set, once for each network."""
        self._trained, count = trained, self.problem.networks
        for judge in self._judges.values():
            judge.start_from(trained)
        save_params(scratch / TRAINED, trained if count == 1 else Params.stacked([trained] * count))

    def train_short_runs(self, precision: Precision, job: Job) -> None:
        """Train what `judge_short_runs` compares with, controls included, ahead of the job's result."""
        for judge in self._of(job.round):
            judge.train_short_runs(precision, job)

    def record(self, round_: int) -> OracleRecord:
        """What the oracle of the first judged network came to."""
        return self._of(round_)[0].record(round_)

    def judge(self, precision: Precision, job: Job, result: JobResult, attempt: Attempt, folder: Path) -> Judged:
        """The checks of what a process left in a folder, and each network's test accuracy.

        Raises OSError or ValueError if that is incomplete.
        """
        if not attempt.kept:
            return self._judge(precision, job, result, attempt, folder)
        kept = attempt.seeds[attempt.kept[0]]
        runs = dict(zip(self._of(job.round), (network_run(kept, one) for one in self.judged(job.round)), strict=True))
        self._train_again(job, runs)
        judged = self._judge(precision, job, result, attempt, folder)
        failed = [check for check in judged.checks if not check.passed]
        if not failed or not all(map(depends_on_controls, failed)) or not self._train_controls(job, precision, runs):
            return judged
        judged = self._judge(precision, job, result, attempt, folder)
        return judged._replace(checks=[by_own_controls(check) for check in judged.checks])

    def _judge(self, precision: Precision, job: Job, result: JobResult, attempt: Attempt, folder: Path) -> Judged:
        """The same, by the oracles and controls that are there."""
        if self.problem.networks == 1:
            return self._first.judge(precision, job, result, attempt, folder)
        checks = self._worst(job.round, lambda judge: judge.judge(precision, job, result, attempt, folder).checks)
        kept, test = attempt.kept[0], self.dataset.test
        final = load_params(folder / run_file(kept), self.problem)
        runs = [network_run(attempt.seeds[kept], network) for network in range(self.problem.networks)]
        begins = [initial_params(self._first.problem, run) for run in runs]
        ends = [RunEnd.of(begin, end, test) for begin, end in zip(begins, final.apart(), strict=True)]
        checks += verify_networks(self.problem, ends, self.judged(job.round))
        accuracies = [tested.accuracy for tested in evaluate_all(final.weights, final.biases, test.images, test.labels)]
        return Judged(checks, fmean(accuracies), accuracies)

    def _train_again(self, job: Job, judged: Mapping[Judge, int]) -> None:
        """Train the oracle of a judged run that a further attempt has alone."""
        if untrained := [run for judge, run in judged.items() if not judge.has_trained(run)]:
            self.train(untrained, Path(job.dataset).parent, set())

    def _train_controls(self, job: Job, precision: Precision, judged: Mapping[Judge, int]) -> bool:
        """Let more controls train the judged runs, and widen their limits by them; False if they have done so before.

        All runs share the first one's controls. These may not meet the unit at its ReLU's corner that another run
        meets, nor turn to both sides of their own.
        """
        new = {judge: run for judge, run in judged.items() if (run, precision) not in self._with_controls}
        for judge, run in new.items():
            self._with_controls.add((run, precision))
            dataset, shared = Path(job.dataset).parent / "dataset", self._spreads[judge.problem]
            arguments = (judge.problem, dataset, [run], ORACLE_BUDGET_S, self._curve_steps, {precision})
            try:
                own = compute_all(*arguments, own=True)
            except UsageError:  # the controls diverge from these parameters: the shared ones' limits stay
                continue
            both = {each: [shared[each], own.runs[run].spreads[each]] for each in shared}
            judge.adopt(own, [run], {each: largest_spreads([*filter(None, two)]) for each, two in both.items()})
        return bool(new)

    def judge_short_runs(self, precision: Precision, job: Job, result: JobResult, folder: Path) -> list[Check]:
        """The worst checks of the networks' short runs; raises OSError or ValueError if the files are incomplete."""
        return self._worst(job.round, lambda judge: judge.judge_short_runs(precision, job, result, folder))

    def _of(self, round_: int) -> list[Judge]:
        """The judges of a round."""
        for network in self.judged(round_):
            if network not in self._judges:
                judge = self._judges[network] = self._judge_of(network=network)
                if self._trained is not None:
                    judge.start_from(self._trained)
        return [self._judges[network] for network in self.judged(round_)]

    def _worst(self, round_: int, ask: Callable[[Judge], list[Check]]) -> list[Check]:
        """The worst check of each name, with its network if there are several.

        Their judges work one after the other: the threads of several would mostly wait for each other's Python.
        """
        judges = self._of(round_)
        if self.problem.networks == 1:
            return ask(judges[0])
        check_lists = [ask(judge) for judge in judges]
        named = [
            msgspec.structs.replace(check, note=f"network {network + 1}{f'; {check.note}' if check.note else ''}")
            for network, checks in zip(self.judged(round_), check_lists, strict=True)
            for check in checks
        ]
        return worst_of(named)
