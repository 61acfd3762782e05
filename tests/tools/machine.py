"""A machine for set-up to run on, whose Python, pip and uv only write down what they were asked to do."""

from __future__ import annotations

import shutil
from pathlib import Path

from tools import setup

PYPROJECT = """
[project]
dependencies = ["numpy>=2"]
[project.optional-dependencies]
cuda12 = ["cupy-cuda12x"]
cuda13 = ["cupy-cuda13x"]
torch-cuda12 = ["torch==12"]
torch-cuda13 = ["torch==13"]
torch-cpu = ["torch==1"]
jax-cuda12 = ["jax[12]"]
jax-cuda13 = ["jax[13]"]
jax-cpu = ["jax"]
compile = ["nvrtc"]
dev = ["pytest"]
site = ["mkdocs"]
cluster = ["submitit"]
"""

FAKE_PYTHON = """#!/bin/sh
case "$1" in -c)
    if [ -n "$IMPORT_FAILS" ]; then echo "$IMPORT_FAILS" >&2; exit 1; fi
    exit ;;
esac
echo "python $*" >> "$FAKE_LOG"
set > "$FAKE_LOG.variables"
case "$2" in
venv)
    if [ -n "$VENV_FAILS" ]; then echo "$VENV_FAILS"; exit 1; fi
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
pip)
    case "$*" in *--extra-index-url*) if [ -n "$INDEX_FAILS" ]; then echo "$INDEX_FAILS"; exit 1; fi ;; esac
    if [ -n "$INSTALL_FAILS" ]; then echo "$INSTALL_FAILS"; exit 1; fi
    if [ -n "$INSTALL_SAYS" ]; then echo "$INSTALL_SAYS"; fi ;;
esac
"""

FAKE_UV = """#!/bin/sh
if [ "$1" = -c ]; then exit; fi
echo "uv $*" >> "$FAKE_LOG"
for last; do :; done
if [ "$1" = venv ]; then mkdir -p "$last/bin" && cp "$0" "$last/bin/python"; fi
"""


def write_program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


class Machine:
    """A project in an empty folder, on a machine with one Python and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.programs = folder / "bin"
        self.log = folder / "log"
        for made in (self.root, self.programs):
            made.mkdir()
        for name in ("mkdir", "cp"):
            found = shutil.which(name)
            assert found
            (self.programs / name).symlink_to(found)
        self.python = write_program(self.programs / "python3", FAKE_PYTHON)
        self.pyproject = self.root / "pyproject.toml"
        self.pyproject.write_text(PYPROJECT)

    def set_up(self, *arguments: str) -> tuple[int, list[str]]:
        """Run set-up: its exit status, and the commands that it ran."""
        self.log.write_text("")
        status = setup.main(list(arguments), self.root)
        return status, self.log.read_text().replace(f"{self.root}/", "").splitlines()

    def installed(self, *arguments: str) -> list[str]:
        """Run set-up, which has to succeed: the requirements that the last pip was given."""
        status, commands = self.set_up(*arguments)
        assert status == 0
        return commands[-1].split("--no-input ")[1].split() if commands else []
