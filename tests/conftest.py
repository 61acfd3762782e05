"""Fixtures and hooks for all tests: skips by marker, and kernels executed on the CPU."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ladder.machine.environment import missing
from tests.browser import context, open_page
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, cuda_files
from tests.cpu_cuda.shim import Shim, Toolchain
from tests.ladder.in_process import judge_in_this_process
from tests.ladder.times import passed_times

__all__ = ["context", "open_page", "toolchain"]

MOST_REASONS, LONGEST_REASON = 6, 100
PATIENCE_S = 60
FAST_TO_COMPILE = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
# Files that take longest or mostly wait. They begin first, so that no process is left with one at the end.
FIRST = (
    "ladder/study/test_slurm.py",
    "ladder/torch_model/test_export.py",
    "kernels/test_kernels_on_cpu.py",
    "stages/references/test_references.py",
    "reports/explorer/test_page.py",
    "cheats/test_caught.py",
    "kernels/test_kernels_compile.py",
    "kernels/test_dependent_kernels.py",
    "torch_model/test_users.py",
    "torch_model/test_traps.py",
    "test_full_disk.py",
    "tools/test_site.py",
    "tools/test_tune_references.py",
    "ladder/study/test_local_jobs.py",
    "test_study_command.py",
    "test_interrupt.py",
    "test_command_line.py",
    "test_check_command.py",
    "ladder/verify/test_gates.py",
    "cheats/test_honest.py",
    "examples/test_page.py",
    "test_faults.py",
)
NEEDS = {"gpu": ("cuda",), "torch": ("torch",), "jax": ("jax",)}


def pytest_configure() -> None:
    """Let programs that tests start receive Ctrl-C even if pytest runs in the background, where it is ignored.

    On a machine without a GPU, let XLA optimise little: it compiles each tiny program in half of the time.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if missing(("cuda",)):
        os.environ.setdefault("XLA_FLAGS", FAST_TO_COMPILE)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without Python's collector of garbage: there is none, and looking for it takes a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests with a marker in `NEEDS` that this machine cannot run. Begin with the files in `FIRST`."""
    order = {Path(__file__).parent / name: at for at, name in enumerate(FIRST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))
    for marker, needs in NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = missing(needs) if marked else None
        if reason:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why tests were skipped: a line a reason, with the number of tests, where pytest has a line a place."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in reasons.most_common(MOST_REASONS):
        terminalreporter.write_line(f"{count:5}  {reason}")
    if others := reasons.total() - sum(count for _, count in reasons.most_common(MOST_REASONS)):
        terminalreporter.write_line(f"{others:5}  for other reasons; ARGS=-rs lists them all")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The reason of a skipped test, in one line."""
    where = report.longrepr
    text = where[2] if isinstance(where, tuple) else str(where)
    return " ".join(text.removeprefix("Skipped: ").split())[:LONGEST_REASON]


@pytest.fixture(scope="session", autouse=True)
def times_pass() -> Iterator[None]:
    """A busy machine fails no test by a check of times."""
    with passed_times():
        yield


@pytest.fixture
def impatient() -> Iterator[None]:
    """A test that waits for ever, as for a pipe, fails."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for ever"))
    signal.alarm(PATIENCE_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs within the test take place in this process."""
    judge_in_this_process(monkeypatch)


@pytest.fixture(scope="session")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolchain]:
    """Compiles and executes kernels; workers of pytest-xdist share the compiled code."""
    base = tmp_path_factory.getbasetemp()
    with closing(Toolchain((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cpu_cuda")) as toolchain:
        yield toolchain


@pytest.fixture(scope="session")
def shim(toolchain: Toolchain) -> Shim:
    """All kernels of the project."""
    return Shim(cuda_files(KERNELS_FOLDER), toolchain)
