"""What set-up installs, where, when it has nothing to do, and what it says when it cannot go on."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path

import pytest

from common.cuda import driver
from tests.ladder import gpus
from tests.tools.machine import FAKE_PYTHON, FAKE_UV, PYPROJECT, Machine, write_program
from tools import setup
from tools.setup import CONFLICTS

ROOT = Path(setup.__file__).resolve().parent.parent
MAKE = shutil.which("make")
NO_CUDA = ["numpy>=2", "jax"]
CUDA_12 = ["numpy>=2", "cupy-cuda12x", "jax[12]", "torch==12"]
CUDA_13 = ["numpy>=2", "cupy-cuda13x", "jax[13]", "torch==13"]


@pytest.mark.parametrize("keeps_nothing", [False, True])
def test_without_uv_python_makes_the_venv_and_its_pip_installs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, keeps_nothing: bool
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", keeps_nothing)
    status, commands = machine.set_up()
    assert status == 0
    compiling = "" if keeps_nothing else "--no-compile "
    assert commands == [
        "python -m venv .venv",
        f"python -m pip install {compiling}--disable-pip-version-check --no-input numpy>=2 jax",
    ]


def test_uv_does_both_when_it_is_on_the_path(machine: Machine) -> None:
    write_program(machine.programs / "uv", FAKE_UV)
    status, commands = machine.set_up("--dev")
    assert status == 0
    assert commands == [
        f"uv venv --seed --python {machine.python} .venv",
        "uv pip install --python .venv/bin/python numpy>=2 nvrtc pytest jax",
    ]


def test_a_second_run_does_and_says_nothing(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine.set_up("--dev")[1]
    capsys.readouterr()
    assert machine.set_up("--dev") == (0, [])
    assert machine.set_up() == (0, [])
    assert capsys.readouterr() == ("", "")


def test_extras_add_up_and_changed_dependencies_go_into_the_venv_that_is_there(machine: Machine) -> None:
    assert machine.installed("--jax", "0") == ["numpy>=2"]
    kept = machine.root / ".venv" / "kept"
    kept.touch()
    assert machine.installed("--jax", "0", "--dev") == ["numpy>=2", "nvrtc", "pytest"]
    assert machine.installed("--jax", "0", "--torch", "1") == ["numpy>=2", "nvrtc", "pytest", "torch==1"]
    machine.pyproject.write_text(PYPROJECT.replace("numpy>=2", "numpy>=3"))
    assert machine.installed() == ["numpy>=3", "nvrtc", "pytest", "jax", "torch==1"]
    machine.pyproject.write_text(PYPROJECT)
    assert machine.installed("--site") == ["numpy>=2", "nvrtc", "pytest", "jax", "mkdocs", "torch==1"]
    assert machine.installed("--cluster", "1")[:3] == ["numpy>=2", "submitit", "nvrtc"]
    assert kept.exists()


@pytest.mark.parametrize(
    ("version", "requirements"),
    [(None, NO_CUDA), ((11, 4), NO_CUDA), ((12, 0), CUDA_12), ((12, 9), CUDA_12), ((14, 1), CUDA_13)],
)
def test_the_driver_chooses_and_an_old_one_is_told_so(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    version: tuple[int, int] | None,
    requirements: list[str],
) -> None:
    monkeypatch.setattr(driver, "driver_version", lambda: version)
    assert machine.installed() == requirements
    told = "supports CUDA 11.4; update it to 525 or newer to use the GPU" in capsys.readouterr().out
    assert told == (version == (11, 4))


@pytest.mark.parametrize(
    ("gpu", "version", "requirements", "told"),
    [
        (gpus.V100, (13, 0), CUDA_12, "13.0, but the GPU, sm_70, is too old"),
        (gpus.V100, (12, 8), CUDA_12, "supports CUDA 12.8;"),
        (gpus.K80, (12, 8), NO_CUDA, "CPU only since the NVIDIA driver supports CUDA 12.8, but the GPU,"),
        (gpus.H200, (13, 0), CUDA_13, "supports CUDA 13.0;"),
    ],
)
def test_the_gpu_has_a_say(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gpu: driver.DeviceInfo,
    version: tuple[int, int],
    requirements: list[str],
    told: str,
) -> None:
    gpus.show(monkeypatch, gpu, version=version)
    assert machine.installed() == requirements
    assert told in capsys.readouterr().out


def test_a_driver_that_cannot_be_used_is_told_with_what_helps(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus.hide(monkeypatch)
    monkeypatch.setattr(driver, "no_device_reason", lambda: "cuInit failed with A_STUB (34)")
    monkeypatch.setattr(driver, "no_device_remedy", lambda: "Take it away")
    assert machine.installed() == NO_CUDA
    assert "CPU only: cuInit failed with A_STUB (34). Take it away; extras" in capsys.readouterr().out


@pytest.mark.parametrize(("asked", "requirements"), [("12", CUDA_12), ("13", CUDA_13), ("cpu", NO_CUDA)])
def test_the_user_overrules_the_driver(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, asked: str, requirements: list[str]
) -> None:
    monkeypatch.setattr(driver, "driver_version", lambda: (13, 0) if asked == "12" else (12, 4))
    assert machine.installed("--cuda", asked) == requirements


def test_torch_for_the_cpu_is_looked_for_in_its_own_index_first(machine: Machine) -> None:
    status, commands = machine.set_up("--torch", "1")
    assert status == 0
    assert commands[1].endswith("--no-deps --extra-index-url https://download.pytorch.org/whl/cpu torch==1")
    assert commands[2].endswith("--no-input numpy>=2 jax torch==1")


def test_a_gpu_s_torch_and_jax_are_not_replaced_by_the_cpu_s(machine: Machine) -> None:
    machine.installed("--cuda", "13")
    assert machine.set_up("--cuda", "cpu", "--torch", "1") == (0, [])


def test_switching_cuda_makes_the_venv_anew_alone(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.installed("--cuda", "12", "--dev")
    left_over = machine.root / ".venv" / "cupy"
    left_over.touch()
    capsys.readouterr()
    assert machine.installed("--cuda", "13") == ["numpy>=2", "cupy-cuda13x", "pytest", "jax[13]", "torch==13"]
    assert not left_over.exists()
    said = ".venv has cuda12, jax-cuda12, torch-cuda12, which cannot stay beside cuda13, jax-cuda13, torch-cuda13: "
    assert said in capsys.readouterr().out


def test_cuda_12_stays_once_it_was_chosen_on_a_newer_driver(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.installed("--cuda", "12")
    monkeypatch.setattr(driver, "driver_version", lambda: (13, 0))
    assert machine.set_up() == (0, [])
    assert machine.installed("--dev") == ["numpy>=2", "cupy-cuda12x", "pytest", "jax[12]", "torch==12"]


def test_tests_on_the_cpu_add_the_compiler_unless_cuda_brought_it(machine: Machine) -> None:
    machine.installed("--cuda", "12")
    assert machine.installed("--cuda", "cpu", "--dev") == ["numpy>=2", "cupy-cuda12x", "pytest", "jax[12]", "torch==12"]


def test_the_venv_is_made_anew_from_inside_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.installed("--cuda", "12")
    inside = machine.root / ".venv" / "bin" / "python3"
    inside.symlink_to(machine.python)
    monkeypatch.setattr(sys, "executable", str(inside))
    assert machine.installed("--cuda", "13") == ["numpy>=2", "cupy-cuda13x", "jax[13]", "torch==13"]


def test_another_python_makes_the_venv_anew(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.installed("--dev")
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    status, commands = machine.set_up()
    assert status == 0
    assert commands[0] == "python -m venv .venv"
    assert commands[1].endswith("numpy>=2 nvrtc pytest jax")


def test_every_extra_that_set_up_may_ask_for_is_in_pyproject() -> None:
    _, optional = setup.dependency_tables(ROOT / "pyproject.toml")
    asked = {"dev", "compile", "site", "cluster", "torch-cpu", "jax-cpu", "loops"}
    asked |= {extra for left, right in setup.CONFLICTS for extra in left | right}
    # Which only some readers need, and which PyTorch brings.
    assert asked == set(optional) - {"notebook", "cute", "tinygrad", "triton"}


def test_the_dev_extra_brings_every_program_that_our_scripts_run() -> None:
    scripts = [ROOT / "Makefile", *ROOT.glob("tools/*.sh")]
    programs = {name for path in scripts for name in re.findall(r"\.venv/bin/([\w-]+)", path.read_text())}
    _, optional = setup.dependency_tables(ROOT / "pyproject.toml")
    installed = {re.split(r"[<>=\[]", requirement)[0] for requirement in optional["dev"]}
    packages = {"lint-imports": "import-linter"}
    assert {packages.get(name, name) for name in programs - {"python"}} <= installed


@pytest.mark.skipif(MAKE is None, reason="make is not installed")
def test_make_sets_up_before_it_runs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for inherited in ("MAKEFLAGS", "MAKELEVEL", "PYTHON"):  # from the `make test` that runs this test
        monkeypatch.delenv(inherited, raising=False)
    (machine.root / ".venv" / "bin").mkdir(parents=True)
    write_program(machine.root / ".venv" / "bin" / "python", FAKE_PYTHON)
    shutil.copy(ROOT / "Makefile", machine.root)
    for goal in (
        ["setup", "CUDA=13", "CLUSTER=1"],
        ["ladder", "CUDA=12", "ARGS=--hidden 256"],
        ["test", "TORCH=1", "JAX=0"],
        ["record", "ARGS=logistic"],
    ):
        subprocess.run([str(MAKE), *goal], cwd=machine.root, check=True)
    assert machine.log.read_text().splitlines() == [
        "python tools/setup.py --cuda 13 --torch 0 --jax 1 --cluster 1",
        "python tools/setup.py --cuda 12 --torch 0 --jax 1 --cluster 0",
        "python run_ladder.py --stages all --hidden 256",
        "python tools/setup.py --cuda auto --torch 1 --jax 0 --cluster 0 --dev",
        "python -m pytest -n 4 --dist loadfile --no-loadscope-reorder -m not alone",
        "python tools/setup.py --cuda auto --torch 0 --jax 1 --cluster 0 --dev",
        "python -m tools.record logistic",
    ]


PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())


def test_extras_that_cannot_be_together_are_conflicts_for_uv() -> None:
    known = {
        frozenset((one["extra"], other["extra"]))
        for conflict in PROJECT["tool"]["uv"]["conflicts"]
        for one, other in combinations(conflict, 2)
    }
    wanted = {frozenset(pair) for left, right in CONFLICTS for pair in product(left, right)}
    assert wanted <= known
    assert {extra for pair in known for extra in pair} <= PROJECT["project"]["optional-dependencies"].keys()


# What set-up says, and leaves behind, when it cannot go on.


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
