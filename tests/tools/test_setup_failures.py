"""What set-up says, and leaves behind, when it cannot go on."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tools.machine import FAKE_PYTHON, Machine, write_program
from tools import setup


@pytest.mark.parametrize("missing", ["setup.json", "bin/python"])
def test_an_interrupted_set_up_is_made_anew(machine: Machine, missing: str) -> None:
    machine.installed()
    (machine.root / ".venv" / missing).unlink()
    half = machine.root / ".venv" / "half"
    half.touch()
    status, commands = machine.set_up()
    assert (status, len(commands)) == (0, 2)
    assert not half.exists()
    assert machine.set_up() == (0, [])


def test_a_moved_checkout_is_set_up_anew(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.installed()
    machine.root = machine.root.rename(machine.root.with_name("moved"))
    assert len(machine.set_up()[1]) == 2
    assert f"setup: .venv was made in {machine.root.with_name('project')}: making it anew\n" in capsys.readouterr().out
    assert machine.set_up() == (0, [])


@pytest.mark.parametrize(
    "output", ["environment was not created successfully because ensurepip is not\navailable.", "No module named venv"]
)
def test_a_missing_venv_module_is_one_line_with_the_way_out(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    monkeypatch.setenv("VENV_FAILS", output)
    assert machine.set_up()[0] == 1
    complaint = capsys.readouterr().err
    major, minor = sys.version_info[:2]
    assert f"lacks its venv module; install it (Debian, Ubuntu: sudo apt install python{major}.{minor}-" in complaint
    assert complaint.count("\n") == 1


NO_NETWORK = """WARNING: Retrying after connection broken by 'NewConnectionError: name resolution'
ERROR: Could not find a version that satisfies the requirement numpy
ERROR: No matching distribution found for numpy
[notice] A new release of pip is available"""


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        (NO_NETWORK, "is there a network? (ERROR: No matching distribution found for numpy)"),
        ("Collecting numpy\nERROR: No space left on device\n", "installing failed: ERROR: No space left on device"),
        ("Killed", "installing failed: Killed"),
    ],
)
def test_a_failing_install_is_one_line_and_the_next_run_goes_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output: str, complaint: str
) -> None:
    monkeypatch.setenv("INSTALL_FAILS", output)
    assert machine.set_up()[0] == 1
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1
    assert output in (machine.root / ".venv" / "setup.log").read_text()
    monkeypatch.delenv("INSTALL_FAILS")
    assert machine.installed() == ["numpy>=2", "jax"]


def test_failing_to_add_leaves_what_was_there_in_use(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.installed()
    monkeypatch.setenv("INSTALL_FAILS", NO_NETWORK)
    assert machine.set_up("--dev")[0] == 1
    assert machine.set_up() == (0, [])


def test_what_was_installed_elsewhere_is_no_finished_set_up(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IMPORT_FAILS", "Traceback\nPackageNotFoundError: No package metadata was found for numpy")
    assert machine.set_up()[0] == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "setup: installed, but not usable from .venv: PackageNotFoundError: No package metadata was "
    )
    assert said.count("\n") == 1
    monkeypatch.delenv("IMPORT_FAILS")
    assert len(machine.installed()) == 2


@pytest.mark.parametrize(
    "name", ["PIP_TARGET", "PIP_DRY_RUN", "PIP_NO_DEPS", "PIP_CONSTRAINT", "UV_NO_DEPS", "PYTHONPATH"]
)
def test_variables_that_lead_elsewhere_do_not_reach_installers(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "/elsewhere")
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_INDEX_URL", "/mirror")
    machine.installed()
    given = machine.log.with_suffix(".variables").read_text().splitlines()
    assert {"PIP_USER='0'", "PIP_INDEX_URL='/mirror'"} <= {*given}
    assert not [line for line in given if line.startswith(f"{name}=")]


@pytest.mark.parametrize(
    ("variable", "output", "told"),
    [
        ("INDEX_FAILS", "error: Failed to fetch: `https://download.pytorch.org/whl/cpu/torch/`", True),
        ("INSTALL_SAYS", "Installed 1 package in 2ms\n + torch==2.11.0", True),
        ("INSTALL_SAYS", "Looking in indexes: ...\nSuccessfully installed torch-2.11.0+cpu", False),
        ("INSTALL_SAYS", "Requirement already satisfied: torch==2.11.0 in .venv (2.11.0+cpu)", False),
    ],
)
def test_one_line_says_that_torch_for_the_cpu_came_from_pypi(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    output: str,
    told: bool,
) -> None:
    monkeypatch.setenv(variable, output)
    assert machine.installed("--torch", "1") == ["numpy>=2", "jax", "torch==1"]
    assert capsys.readouterr().out.count("setup: taking PyPI's PyTorch, with CUDA: ") == told


def test_the_log_keeps_what_all_installers_of_a_set_up_said(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INDEX_FAILS", "no index")
    monkeypatch.setenv("INSTALL_SAYS", "installed")
    machine.installed("--torch", "1")
    log = machine.root / ".venv" / "setup.log"
    assert log.read_text() == "no index\ninstalled\n"
    monkeypatch.delenv("INDEX_FAILS")
    monkeypatch.setenv("INSTALL_SAYS", "pytest, too")
    machine.installed("--dev")
    assert log.read_text() == "pytest, too\npytest, too\n"  # the index again, which set-up asks first


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--cuda", "11"), "setup: CUDA=11: choose 12, 13 or cpu\n"),
        (("--torch", "yes"), "setup: TORCH=yes: choose 1 for PyTorch's CPU build, or 0\n"),
    ],
)
def test_a_choice_there_is_not(
    machine: Machine, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], complaint: str
) -> None:
    assert machine.set_up(*arguments) == (1, [])
    assert capsys.readouterr().err == complaint


def test_an_old_python_can_read_the_file() -> None:
    ast.parse(Path(setup.__file__).read_text(), feature_version=(3, 7))


@pytest.fixture
def run_with_old_python(tmp_path: Path) -> Callable[[], subprocess.CompletedProcess[str]]:
    """Run set-up in a Python that gives itself out as 3.9, with only `tmp_path` on the PATH."""
    pretend = "import re, runpy, sys, typing; sys.version_info = (3, 9, 18); "
    pretend += f"runpy.run_path({setup.__file__!r}, run_name='__main__')"

    def run() -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PATH": str(tmp_path), "FAKE_LOG": str(tmp_path / "log")}
        command = [sys.executable, "-c", pretend, "--cuda", "cpu"]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    return run


def test_an_old_python_is_told_what_is_needed(
    run_with_old_python: Callable[[], subprocess.CompletedProcess[str]],
) -> None:
    run = run_with_old_python()
    assert run.returncode == 1
    assert run.stderr.startswith("setup: needs Python 3.11 or newer")
    assert "is 3.9.18; install one, or name one: make ladder PYTHON=" in run.stderr
    assert run.stderr.count("\n") == 1


def test_an_old_python_hands_over_to_a_newer_one_that_works(
    run_with_old_python: Callable[[], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    write_program(tmp_path / "python3.13", "#!/bin/sh\nexit 127\n")
    write_program(tmp_path / "python3.12", FAKE_PYTHON)
    assert run_with_old_python().returncode == 0
    assert (tmp_path / "log").read_text().splitlines()[-1] == f"python {setup.__file__} --cuda cpu"
