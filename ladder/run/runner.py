"""The scheduler of a run: one fresh process per stage and round, with the results saved after each process.

Rounds are interleaved (A B C, A B C, ...), so that a drift of clocks or temperature affects all stages alike. This
module decides what comes next; the bench starts processes, and the ledger keeps results. It prints nothing; a
`RunObserver` receives the progress.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

import msgspec

from common.blas import limit_blas_threads
from ladder.machine.clock_lock import locked_clocks
from ladder.machine.environment import cores_usable
from ladder.machine.gpu_monitor import NO_ENERGY
from ladder.records.run import Results
from ladder.records.source_walk import Project
from ladder.run.bench import Bench
from ladder.run.bounds import Bounds
from ladder.run.check import Checker
from ladder.run.code_watch import Disk
from ladder.run.jury import Jury
from ladder.run.ledger import Ledger
from ladder.run.nsys_pass import NsysPass
from ladder.run.observer import RunObserver
from ladder.run.orders import Orders
from ladder.run.stage_run import StageRun
from ladder.run.verdicts import Verdicts

MAX_ROUNDS = 450
IN_PROCESSES = "stages' processes"  # a part of the run's time
REPEATING_SHARE, LEAST_REPEATING_S = 0.5, 10.0  # of that time, for measuring disturbed processes again
FEWEST_DISTURBED = 4  # processes; fewer say little of the machine
BUSY = (
    "this machine is busy: other work disturbed every process; end it and start anew; until then differences mean "
    "little"
)
# Rounds whose fork servers import before anything is measured; more of them would fill the memory.
ROUNDS_IMPORTED_AHEAD = 2


def _names(jobs: Iterable[tuple[int, StageRun]]) -> list[str]:
    """The names of the stages with a job, each once."""
    return list(dict.fromkeys(stage.name for _, stage in jobs))


class Runner:
    """One run of the ladder, new or resumed."""

    def __init__(self, bench: Bench, ledger: Ledger, jury: Jury, checked_first: Collection[str] = ()) -> None:
        """`checked_first` names stages that are measured only if a check without timed runs finds them right."""
        self.ledger, self.orders = ledger, Orders(ledger, jury)
        self._bench, self._jury, self._settings = bench, jury, ledger.settings
        self._bounds = Bounds(ledger, jury, bench)
        self._checked_first = checked_first
        self._observer: RunObserver
        self._verdicts: Verdicts

    @property
    def results(self) -> Results:
        """What is measured so far."""
        return self.ledger.results

    def run(self, observer: RunObserver) -> Results:
        """Measure all missing rounds, saving the results after every process.

        Raises UsageError if the GPU's clocks cannot be locked or the oracle cannot be trained.
        """
        self._observer = observer
        self._verdicts = Verdicts(self.ledger, self._jury, self._bounds, self._bench, self.orders, observer)
        with locked_clocks(self._settings.lock_clocks_mhz, observer.note):
            self.orders.skip_unrunnable()
            self._check_first()
            todo = [(round_, stage) for round_ in range(self._settings.rounds) for stage in self.orders.due(round_)]
            self._announce(todo)
            self.ledger.save()
            with self._bench.opened(self.orders.scratch_bytes, observer.note):
                self.orders.save_data(self._bench.scratch / "dataset")
                began = time.monotonic()
                if todo:
                    self._measure_rounds(sorted({round_ for round_, _ in todo}))
                self._repeat_disturbed()
                self._add_rounds(began)
                if "nsys" in self._settings.profile:
                    NsysPass(self.ledger, self._jury, self._bounds, self._bench, self.orders, observer).run()
        self.ledger.reveal(self._jury.salt if self._jury.has_trained else None)
        self.ledger.save()
        observer.end()
        return self.results

    def _announce(self, todo: Sequence[tuple[int, StageRun]]) -> None:
        """Announce what will be measured, and what will not."""
        note, stages = self._observer.note, self.ledger.stages
        if before := sum(len(stage.processes) for stage in stages):
            note(f"continuing: {before} of {before + len(todo)} processes were measured before")
        if skipped := {stage.name: stage.reason or "" for stage in stages if stage.status == "skipped"}:
            self._observer.skip(skipped)
        if self._settings.energy and self._bench.gpu.energy_j() is None:
            note(NO_ENERGY)
        for stage in dict.fromkeys(stage for _, stage in todo):
            if stage.expected and stage.expected.remark:
                note(f"{stage.name}: {stage.expected.remark}")
        if todo or not before:
            self._observer.begin(len(todo), _names(todo))

    def _check_first(self) -> None:
        """Check stages that nothing is known of yet, and record those that are wrong: no round measures them."""
        stages, note = self.ledger.stages, self._observer.note
        fresh = [
            (index, stage)
            for index, stage in enumerate(stages)
            if stage.name in self._checked_first and stage.status is None and not stage.processes
        ]
        if not fresh:
            return
        room = self._bench.opened(self.orders.scratch_bytes, note)
        with self.ledger.timing("checking stages of one's own"), room:
            precisions = {stage.entry.stage.precision for _, stage in fresh}
            checker = Checker(self._bench, self._jury.problem, self._jury.dataset, precisions)
            for index, due in fresh:
                stage = StageRun(due.entry, self._jury.steps, expected=due.expected, project=Project(Disk()))
                checker.check(stage)
                if stage.status == "crashed":
                    stage.crash(f"{stage.reason}; see logs/{stage.name}.check.log")
                if stage.status != "passed":
                    stages[index] = stage
                note(f"{stage.name}, checked first: {stage.reason or 'right'}")

    def _measure_rounds(self, rounds: Sequence[int]) -> None:
        """Measure what is missing in these rounds."""
        bench, orders = self._bench, self.orders
        stages = [stage for stage in self.ledger.stages if any(stage in orders.due(round_) for round_ in rounds)]
        has_gpu = self.ledger.gpu_memory_mib is not None
        at_once = (
            ROUNDS_IMPORTED_AHEAD if has_gpu else 1
        )  # a CPU trains the oracle; the second round may need no PyTorch
        ahead = rounds[:at_once] if self._settings.at_once == 1 else []
        with bench.preparing() as import_ahead:
            if (leading := self._leading_in(ahead)) is not None:
                import_ahead(ahead[0], orders.due(ahead[0]))
                bench.prepare_one(first := orders.order(leading, ahead[0]))
                self._train_all_oracles()
                with bench.first_alone(first):  # other libraries may take longer to import than it to prepare
                    self._run_stages(ahead[0], [leading])
            with ExitStack() as beside:
                compilers = None
                for round_ in ahead[1:] if leading else ahead:
                    import_ahead(round_, orders.due(round_))
                for round_ in ahead[:1]:  # beside the oracle, which takes as long
                    bench.prepare(orders.order(stage, round_) for stage in self._quick_in(round_))
                    if bench.has_room:  # what a worker compiles only in its turn, once it has timed something
                        compilers = beside.enter_context(bench.compilers(orders.to_compile(), round_, fewest=1))
                self._judge_from_now_on()
                if compilers is not None:
                    self._await_compiled(compilers.names, compilers.wait)
            for round_ in rounds:
                with bench.round(round_, orders.due(round_) if self._settings.at_once == 1 else []):
                    self._measure_round(round_, stages)

    def _leading_in(self, ahead: Sequence[int]) -> StageRun | None:
        """The stage of the first row, where others would take the cores that it and the oracle need to prepare.

        None where few prepare, and for a stage that takes long to compile.
        """
        due = self._quick_in(ahead[0]) if ahead else []
        leads = self._bench.is_crowded_by(due) and not due[0].entry.stage.keeps_compiled_code
        return due[0] if leads else None

    def _judge_from_now_on(self) -> None:
        """Return when the oracles are trained and the libraries imported, beside which nothing is measured."""
        self._train_all_oracles()
        with self.ledger.timing("importing libraries"):
            self._bench.await_imports()

    def _train_all_oracles(self) -> None:
        """Train the oracles of every round, unless they have been."""
        self._train_oracles(range(self._settings.rounds))
        self.ledger.keep_oracle(self._jury.record(self._settings.rounds - 1))

    def _measure_round(self, round_: int, stages: Sequence[StageRun]) -> None:
        """Measure what is missing in a round, and first what compiles quickly; `stages` are those of all rounds."""
        left_out = self.orders.left_out(round_)
        for why in dict.fromkeys(left_out.values()):
            self._observer.leave_out([name for name in left_out if left_out[name] == why], f"round {round_ + 1}: {why}")
        quick = self._quick_in(round_)
        self._run_stages(round_, quick)
        self._bounds.measure(stages, self._observer)
        rest = [stage for stage in self.orders.due(round_) if stage not in quick]
        with self._bench.compilers(self.orders.to_compile(), round_) as compilers:
            self._await_compiled(compilers.names, compilers.wait)
        self._run_stages(round_, rest)

    def _quick_in(self, round_: int) -> list[StageRun]:
        """The stages that a round still has to measure, and that compile nothing first or do so while they prepare."""
        due = self.orders.due(round_)
        return due if self._bench.has_room else [stage for stage in due if not self.orders.needs_compiling(stage)]

    def _await_compiled(self, names: Sequence[str], wait: Callable[[], Mapping[str, float]]) -> None:
        """Wait for these stages' compilers; nothing may be measured beside them."""
        if names:
            self._observer.step(f"compiling {len(names)} of the stages")
            with self.ledger.timing("compiling"):
                compiled = wait()
            self.ledger.keep_compile_times(compiled)

    def _train_oracles(self, rounds: Iterable[int]) -> None:
        """Train the oracle for these rounds, unless it has been."""
        stages = self.ledger.stages
        own = [stage.own for stage in stages if stage.own and stage.status in (None, "passed")]
        if untrained := self._jury.untrained(rounds, own):
            self._observer.step("training in float64, to check against")
            precisions = {stage.entry.stage.precision for stage in stages if stage.status != "skipped"}
            job = next((self.orders.order(stage, 0).job for stage in stages if stage.needs_round(0)), None)
            with self.ledger.timing("training the oracle"):
                self._jury.train(untrained, self._bench.scratch, precisions, job)

    def _run_stages(self, round_: int, stages: Sequence[StageRun], deadline: float = math.inf) -> None:
        """Run one process for each of these stages; none starts after `deadline`, a time of the monotonic clock."""
        if self._settings.at_once > 1:
            self._run_side_by_side(round_, stages)
            return
        for index, stage in enumerate(stages):
            if self._bench.holds:
                if self._bench.may_hold(stage) and self._bench.is_empty:
                    self._observer.step("preparing stages side by side")
                    self._bench.prepare(self.orders.order(later, round_) for later in stages[index:])
                with self.ledger.timing("preparing side by side"):
                    self._bench.await_prepared()
            while time.monotonic() < deadline:
                self._run_stage(round_, stage)
                if not stage.should_repeat_timer_failure(round_, self._settings.remeasure):
                    break  # else it is repeated at once, since later rounds skip failed stages

    def _run_stage(self, round_: int, stage: StageRun) -> None:
        """Run one fresh process for a stage and round, or let the prepared one go on; verify it, save the results."""
        stage.set_round_aside(round_)
        attempt = 1 + sum(process.round == round_ for process in stage.set_aside)
        attempts = max(attempt, 1 + self._settings.remeasure)
        self._observer.start(stage.name, round_ + 1, max(self._settings.rounds, round_ + 1), attempt, attempts)
        self._observer.step("measuring")
        with self.ledger.timing(IN_PROCESSES):
            finished = self._bench.run(self.orders.order(stage, round_))
        self._verdicts.record(finished)

    def _run_side_by_side(self, round_: int, stages: Sequence[StageRun]) -> None:
        """Run a round's processes side by side, for runs that verify stages without timing them.

        BLAS gets a share of the cores in each process, and in this one, which checks their results in float64.
        """
        at_once, share = self._settings.at_once, max(1, cores_usable() // self._settings.at_once)
        orders = [self.orders.order(stage, round_) for stage in stages]
        orders = [replace(one, job=msgspec.structs.replace(one.job, blas_threads=share)) for one in orders]
        with limit_blas_threads(share), self._bench.together(orders, at_once) as ended:
            for unfinished in range(len(orders), 0, -1):
                self._observer.start(f"{min(unfinished, at_once)} side by side", round_ + 1, self._settings.rounds)
                with self.ledger.timing(IN_PROCESSES):
                    finished = next(ended)
                self._verdicts.record(finished)

    def _repeat_disturbed(self, deadline: float = math.inf) -> None:
        """Measure disturbed processes again, up to `remeasure` times each.

        An undisturbed attempt counts; if there is none, the one that circumstances disturbed least. Trying again takes
        at most half as long as the stages have taken. Where every process was disturbed, it would help none.
        """
        stages, note = self.ledger.stages, self._observer.note
        limit = self._settings.remeasure if self._settings.at_once == 1 else 0
        allowed_s = max(REPEATING_SHARE * self.ledger.took_s(IN_PROCESSES), LEAST_REPEATING_S)
        deadline = min(deadline, time.monotonic() + allowed_s)
        for left in range(limit, 0, -1):
            worth = [stage for stage in stages if not self.orders.is_behind(stage)]
            again = [(round_, stage) for stage in worth for round_ in stage.rounds_to_repeat(limit)]
            if not again or time.monotonic() >= deadline:
                return
            if len(again) >= FEWEST_DISTURBED and all(stage.is_disturbed_throughout for stage in stages):
                note(f"{BUSY}; no process is measured again")
                return
            it = "it" if len(again) == 1 else "them"
            self._observer.begin(len(again), _names(again), f"as other work disturbed {it}")
            note(
                f"at most {'1 more try' if left == 1 else f'{left} more tries'} of each; Ctrl-C keeps what is measured"
            )
            self._train_oracles({round_ for round_, _ in again})
            for round_ in sorted({round_ for round_, _ in again}):
                self._run_again(
                    round_, [one for nth, one in again if nth == round_ and one.status == "passed"], deadline
                )

    def _add_rounds(self, began: float) -> None:
        """Add rounds until every stage's interval is as narrow as `precision` asks, or the time is up."""
        precision, deadline = self._settings.precision, began + self._settings.time_cap_s
        while precision is not None and time.monotonic() < deadline:
            wide = [one for one in self.ledger.stages if (known := one.interval()) and known.half_width > precision]
            round_ = 1 + max((process.round for stage in wide for process in stage.processes), default=MAX_ROUNDS)
            if round_ >= MAX_ROUNDS:
                return
            names = [stage.name for stage in wide]
            self._observer.begin(len(wide), names, "as their spread is still wider than --precision")
            self._train_oracles([round_])
            self._run_again(round_, wide, deadline)
            self._repeat_disturbed(deadline)

    def _run_again(self, round_: int, stages: Sequence[StageRun], deadline: float) -> None:
        with self._bench.round(round_, stages):
            self._run_stages(round_, stages, deadline)
