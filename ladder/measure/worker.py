"""The process that does one job for one stage, forked or started as `python -m ladder.measure.worker FOLDER`.

Every stage gets a process of its own in every round. A sticky CUDA error, a warm cache, a changed thread pool or a
profiler cannot reach another stage.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
import traceback
from contextlib import closing, nullcontext, suppress
from functools import partial
from pathlib import Path

import msgspec

from common.choice import await_turn, grant_turns_by, let_search, share_choices
from common.cuda import nvtx
from common.cuda.clock import fence
from common.cuda.driver import has_context
from common.data.dataset import Dataset
from common.errors import MisfitError, way_out
from common.files import NO_ROOM
from common.problem import initial_params
from common.process_group import die_with_parent
from common.ranks import RankError, tell_losses_by
from common.streams import flush_output, print_error
from common.trainer import wait_of
from ladder.machine.environment import import_packages
from ladder.measure import protocol
from ladder.measure.measurement import ClosingError, Measurement, close, prepared_validation
from ladder.measure.profiled import OwnProfile, sample_of
from ladder.measure.protocol import Job, JobResult
from ladder.measure.seeds import RunSeeds
from stages.engine.stage import Stage
from stages.engine.user_stage import enter_folder
from stages.registry import load_entry, own_file

# Python, its packages and the harness: a line of theirs says nothing about the stage.
ROOT = Path(__file__).resolve().parents[2]
NOT_THE_STAGE = (*sysconfig.get_paths().values(), str(ROOT / "ladder"), str(ROOT / "common"), "<")


def main(folder: Path) -> int:
    """Do the job in the folder, leave its result there, and return the exit code."""
    die_with_parent()
    tell_losses_by(partial(leave_loss, folder))
    job = msgspec.json.decode((folder / protocol.JOB).read_bytes(), type=Job)
    choices: dict[str, int] = {}
    own = own_file(job.source)
    if job.searches:
        let_search()
    try:
        if own:
            enter_folder(own)
        if not job.compiles:  # beside other processes, choices by timing would be poor
            choices = share_choices(job.choices)
            if not job.compilers or (job.mark and Path(job.mark).is_file()):
                start_no_compilers()
        if job.compiles:
            result = warm_compile_cache(job)
        elif job.profile == "nsys":
            result = run_under_nsys(job)
        else:
            result = measure(job, folder)
    except MisfitError as error:
        result = JobResult(misfit=str(error))
    except ClosingError as error:
        print_error()
        result = JobResult(error=f"{crash_reason(error.__cause__ or error)} while closing")
    except Exception as error:  # the stage's own error is the reason in its row
        print_error()
        if isinstance(error, OSError) and error.errno in NO_ROOM and str(error.filename).startswith(f"{folder}/"):
            result = JobResult(error=protocol.no_room(error))  # the harness's own files
        else:
            way = f"; {way_out(error, own)}" if own and way_out(error, own) else ""
            result = JobResult(error=crash_reason(error) + way, lost_rank=isinstance(error, RankError))
    try:
        protocol.write_result(folder, msgspec.structs.replace(result, choices=choices))
    except OSError as error:
        print_error()
        return protocol.NO_ROOM_CODE if error.errno in NO_ROOM else 1
    return 0 if result.error is None else 1


def leave_loss(folder: Path, error: Exception) -> None:
    """Leave the loss of a rank as the result, unless there is one already: the main thread may wait in a kernel."""
    traceback.print_exception(error)
    if not (folder / protocol.RESULT).exists():
        protocol.write_result(folder, JobResult(error=protocol.one_line(error), lost_rank=True))


def start_no_compilers() -> None:
    """Have PyTorch start no processes that would compile.

    They import it once more and take half a second to end, and would go on beside a process that is timed.
    """
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    if (config := sys.modules.get("torch._inductor.config")) is not None:  # read before this process was forked
        config.compile_threads = 1  # type: ignore[attr-defined]


def measure(job: Job, folder: Path) -> JobResult:
    """Measure the stage; leave the parameters to verify, and a trace, in the folder."""
    with closing(RunSeeds(job.seeds)) as seeds:
        result = Measurement(job, folder, seeds, also=(sys.modules[__name__],)).run()
    if job.first_updates:
        leave_mark(job)  # whatever it needs is compiled
    return result


def run_under_nsys(job: Job) -> JobResult:
    """Prepare; then, in this process's turn, warm up, and run the epochs that the profiler around it records."""
    nvtx.enable()
    stage = load_entry(job.source).stage
    data = Dataset.load_saved(Path(job.dataset), with_test=job.problem.validate_every > 0)
    import_packages(stage.needs)
    with closing(RunSeeds(job.seeds)) as seeds:

        def turn() -> None:
            seeds.await_turn(on_gpu=has_context())

        grant_turns_by(turn)
        trainer = stage.trainer(job.problem, data.train)
        validation = prepared_validation(trainer, job.problem, data.test)
        trainer.load_params(initial_params(job.problem, protocol.run_number(job.round, protocol.COLD_RUN)))
        await_turn()
        profiled = OwnProfile(trainer, sample_of(job.problem, job.wanted.epochs), fence, validation)
        profiled.warm_up()
        profiled.show(stage.name)
        close(trainer)
    return JobResult(device=trainer.device)


def warm_compile_cache(job: Job) -> JobResult:
    """Train as `measure` does for the first time, so that the stage's compiler leaves its output on disk."""
    stage = load_entry(job.source).stage
    data = Dataset.load_saved(Path(job.dataset), with_test=job.problem.validate_every > 0)
    import_packages(stage.needs)
    with (stage.compiles_within or nullcontext)():
        compiled_s = _prepare_ahead(stage, job, data) if stage.compiles_within is not None else 0.0
        with (stage.first_updates_within or nullcontext)():
            for batches in job.first_updates:
                trainer = stage.trainer(job.problem, data.train.first(batches * job.problem.batch_size))
                trainer.load_params(initial_params(job.problem, protocol.COLD_RUN))
                trainer.run_epoch(0)
                wait_of(trainer)()
                fence()
                close(trainer)
    leave_mark(job)
    return JobResult(compiled_s=compiled_s)


def leave_mark(job: Job) -> None:
    """Say that the compiler's output is on disk, where the job names a file for that."""
    if job.mark:
        with suppress(OSError):  # the next run compiles again
            Path(job.mark).parent.mkdir(parents=True, exist_ok=True)
            Path(job.mark).touch()


def _prepare_ahead(stage: Stage, job: Job, data: Dataset) -> float:
    """Prepare the trainer of the timed runs and train an epoch of each kind; returns the seconds of preparing."""
    begin = time.perf_counter()
    trainer = stage.trainer(job.problem, data.train)
    validation = prepared_validation(trainer, job.problem, data.test)
    fence()
    compiled_s = time.perf_counter() - begin
    trainer.load_params(initial_params(job.problem, protocol.COLD_RUN))
    OwnProfile(trainer, sample_of(job.problem, job.problem.epochs), fence, validation).warm_up()
    close(trainer)
    return compiled_s


def crash_reason(error: BaseException) -> str:
    """One line: `ValueError: no (mine.py, line 12)`; without the place where no code of a stage took part."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(NOT_THE_STAGE)]
    return (
        f"{protocol.one_line(error)} ({Path(own[-1].filename).name}, line {own[-1].lineno})"
        if own
        else protocol.one_line(error)
    )


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    flush_output()
    os._exit(code)  # a library that crashes while it is torn down cannot change the exit code
