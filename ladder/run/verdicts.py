"""What becomes of a process that has ended: it is verified, and counts for its stage, or says why it does not."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import msgspec

from common.blas import limit_blas_threads, worthwhile_threads
from ladder.machine.environment import cores_usable
from ladder.measure.protocol import JobResult
from ladder.run.bench import Bench, Finished
from ladder.run.bounds import Bounds
from ladder.run.check import OVERWROTE
from ladder.run.jury import Jury
from ladder.run.ledger import Ledger
from ladder.run.observer import RunObserver
from ladder.run.orders import Orders
from ladder.run.preflight import misfit


class Verdicts:
    """Records the processes of a run as they end."""

    def __init__(
        self, ledger: Ledger, jury: Jury, bounds: Bounds, bench: Bench, orders: Orders, observer: RunObserver
    ) -> None:
        self._ledger, self._jury, self._bounds, self._gpu = ledger, jury, bounds, bench.gpu
        self._requested, self._observer = orders.requested, observer
        self._suspects: set[str] = set()  # orders whose processes ran while the shared data changed

    def record(self, finished: Finished) -> None:
        """Verify a finished process and save the results."""
        order, stage = finished.order, finished.order.stage
        log, result = f"see logs/{order.log.name}", self._with_surroundings(finished)
        stage.choices = result.choices or stage.choices
        if result.retried:
            stage.retries.append(f"round {order.job.round + 1}: {result.retried}")
            self._observer.note(f"{stage.name}: repeated in a newly started process: {result.retried}")
        if result.left:
            self._observer.note(
                f"{stage.name}: left behind: {', '.join(result.left)}; end them in the trainer's close()"
            )
        if files := stage.changed_code():
            stage.fail(f"its code changed while it was measured: {', '.join(files)}; start anew")
        elif self._overwrote_data(finished):
            culprit = "it or a stage beside it" if self._ledger.settings.at_once > 1 else "it"
            stage.fail(f"{culprit} {OVERWROTE}")
        elif result.misfit:
            stage.skip(misfit(stage.entry.stage, self._jury.problem, self._jury.steps, result.misfit))
        elif result.error is None:
            self._observer.step("checking against float64")
            try:
                with self._ledger.timing("checking"):
                    self._verify(finished, result)
            except (OSError, ValueError) as error:
                stage.crash(f"its parameters cannot be checked: {error}; {log}")
        else:
            stage.crash(f"{result.error}; {log}")
        shutil.rmtree(order.folder, ignore_errors=True)  # parameters of a wide network are hundreds of megabytes
        self._ledger.save(measured=True)
        text, step_us = stage.summary(), stage.latest_step_us
        self._observer.finish(stage.name, stage.status or "crashed", text, step_us, disturbed=stage.is_latest_disturbed)

    def _with_surroundings(self, finished: Finished) -> JobResult:
        """The result with what the worker cannot know of its process."""
        result, beside = finished.result, self._ledger.settings.at_once - 1
        if result.process is None:
            return result
        if not beside:  # a pool's workers may have ended before they were polled
            took = result.process.took_s
            took["start and end"] = finished.seconds - sum(took.values())
        rest_mib, peak_mib = self._gpu.memory_used_mib(), result.gpu_peak_mib
        process = msgspec.structs.replace(
            result.process,
            gpu_memory_mib=peak_mib - rest_mib if peak_mib is not None and rest_mib is not None else None,
            beside=beside,
            detail=result.detail,
            stopped_s=result.stopped_s,
            left_behind=result.left,
        )
        return msgspec.structs.replace(result, process=process)

    def _overwrote_data(self, finished: Finished) -> bool:
        """Whether the shared data changed while this process ran; the next one has them whole again."""
        folder = Path(finished.order.job.dataset)
        if not self._jury.dataset.is_saved(folder):
            self._jury.dataset.save(folder)
            self._suspects |= {finished.order.name, *finished.beside}
        return finished.order.name in self._suspects

    def _verify(self, finished: Finished, result: JobResult) -> None:
        """Verify what a process left, and add it to its stage; raises OSError or ValueError if that is incomplete."""
        stage, job = finished.order.stage, finished.order.job
        # BLAS's threads stay awake for a while, beside the next stage that is measured.
        with limit_blas_threads(worthwhile_threads(self._jury.problem.multiplications, cores_usable())):
            began = time.monotonic()
            judged = self._jury.judge(stage.entry.stage.precision, job, result, finished.attempt, finished.order.folder)
        assert result.process is not None  # else it could not be judged
        result.process.took_s["checking"] = time.monotonic() - began
        stage.printed = finished.printed
        shortened = result.plan != self._requested
        stage.add_process(result, judged.checks, judged.accuracy, shortened=shortened, networks=judged.networks)
        self._bounds.check(stage)
