"""Makes `.venv` and installs the packages that this machine can use; a second run does nothing.

The Makefile calls it with any `python3`, before a package is installed. So it needs the standard library alone, and
its syntax must pass Python 3.6, which has to reach the message that it is too old: so this file has no
`from __future__ import annotations`.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

OLDEST_PYTHON = (3, 11)
NEWER_PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11")


def hand_over() -> None:
    """Run this file again with a newer Python from the PATH; exit with one line if there is none."""
    for name in NEWER_PYTHONS:
        path = shutil.which(name)
        if path is None:
            continue
        # A version manager may have a shim on the PATH for a Python that is not installed, so each is tried.
        probe = [path, "-c", f"import sys; sys.exit(sys.version_info < {OLDEST_PYTHON})"]
        if subprocess.call(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
            os.execv(path, [path, *sys.argv])
    version = ".".join(str(part) for part in sys.version_info[:3])
    sys.exit(
        f"setup: needs Python 3.11 or newer, {sys.executable} is {version}; "
        "install one, or name one: make ladder PYTHON=/path/to/python3.12"
    )


if sys.version_info < OLDEST_PYTHON:
    hand_over()


ROOT = Path(__file__).resolve().parent.parent

# Pairs of extras that cannot share a `.venv`: CuPy's wheels for CUDA 12 and 13 own the same files, and pip takes
# PyTorch's CPU build for any other build of the same version.
CONFLICTS = (
    (
        frozenset({"cuda12", "torch-cuda12", "jax-cuda12"}),
        frozenset({"cuda13", "torch-cuda13", "jax-cuda13", "compile"}),
    ),
    (frozenset({"torch-cpu"}), frozenset({"torch-cuda12", "torch-cuda13"})),
)
# PyPI's own build of PyTorch for Linux brings gigabytes of CUDA.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"

# How pip and uv name a PyTorch from PyPI; the index's builds are called `2.13.0+cpu`. The exit status does not tell,
# since pip falls back to PyPI when the index does not answer.
PYPI_TORCH = re.compile(r"^(Successfully installed torch-| \+ torch==)[\d.]+\s*$", re.MULTILINE)

NO_NETWORK = re.compile(
    "NewConnectionError|ConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|name resolution|"
    "Network is unreachable|Connection refused|dns error|error sending request|network connectivity|"
    r"\(from versions: none\)",
    re.IGNORECASE,
)

# Of pip's and uv's variables, those that say how to reach packages; others, and Python's paths, lead elsewhere.
INSTALLERS = re.compile("PIP_|UV_|PYTHON(PATH|HOME)$")
REACHING = re.compile(
    "INDEX|FIND_LINKS|PROXY|CERT|TLS|HOST|CACHE|TIMEOUT|RETRIES|OFFLINE|KEYRING|LINK_MODE|CONFIG_FILE"
)

# Imports what every command needs, and looks for the packages named.
STARTS = (
    "import sys, importlib.metadata as of; [of.version(name) for name in sys.argv[1:]]; import msgspec, numba, rich"
)


class SetupError(Exception):
    """Set-up has to stop: one line with the reason and the way out."""


class Stamp(NamedTuple):
    """The record of a finished set-up, `.venv/setup.json`."""

    python: str  # `3.12`
    tables: str  # the hash of pyproject.toml's dependency tables
    extras: frozenset[str]
    place: str = ""  # of `.venv`, which its programs know; empty: made before stamps had one

    @classmethod
    def read(cls, path: Path) -> "Stamp | None":
        """The stamp of a finished set-up; None without one, as after an interruption."""
        try:
            raw = json.loads(path.read_text())
            return cls(raw["python"], raw["tables"], frozenset(raw["extras"]), raw.get("place", ""))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Write the stamp: the last step of a set-up."""
        path.write_text(json.dumps({**self._asdict(), "extras": sorted(self.extras)}))


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Set up; the exit status is 0 when `.venv` is ready."""
    parser = argparse.ArgumentParser(prog="tools/setup.py", description="Make .venv with what fits this machine.")
    parser.add_argument("--cuda", default="auto", help="12, 13 or cpu instead of what the driver supports")
    parser.add_argument("--torch", default="0", help="1: PyTorch on a machine without a GPU too, as its CPU build")
    parser.add_argument("--jax", default="1", help="0: no JAX on a machine without a GPU")
    parser.add_argument("--cluster", default="0", help="1: what sends a study's points to Slurm or to several GPUs")
    parser.add_argument("--dev", action="store_true", help="what tests and checks need as well")
    parser.add_argument("--site", action="store_true", help="what the static site needs as well")
    options = parser.parse_args(arguments)
    try:
        if options.cuda not in ("auto", "12", "13", "cpu"):
            raise SetupError(f"CUDA={options.cuda}: choose 12, 13 or cpu")
        if options.torch not in ("0", "1"):
            raise SetupError(f"TORCH={options.torch}: choose 1 for PyTorch's CPU build, or 0")
        if options.jax not in ("0", "1"):
            raise SetupError(f"JAX={options.jax}: choose 1 for JAX on the CPU, or 0")
        if options.cluster not in ("0", "1"):
            raise SetupError(f"CLUSTER={options.cluster}: choose 1 for studies on several GPUs or on Slurm, or 0")
        torch, jax = options.torch == "1", options.jax == "1"
        also = frozenset(["cluster"] * (options.cluster == "1") + ["site"] * options.site)
        set_up(root, cuda=options.cuda, torch=torch, jax=jax, dev=options.dev, also=also)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("setup: interrupted; run the same command again", file=sys.stderr)
        return 130
    return 0


def set_up(root: Path, *, cuda: str, torch: bool, jax: bool, dev: bool, also: frozenset[str]) -> None:
    """Bring `root/.venv` to what is asked for and to these extras, adding to what it has.

    Raises SetupError when that cannot be done.
    """
    venv, stamp_path = root / ".venv", root / ".venv" / "setup.json"
    place = os.path.realpath(venv)
    core, optional = dependency_tables(root / "pyproject.toml")
    stamp = Stamp.read(stamp_path) if (venv / "bin" / "python").exists() else None
    before = stamp.extras if stamp else frozenset()
    target, because = cuda_that_fits(cuda, before)
    wanted = extras_for(target, torch=torch, jax=jax, dev=dev, installed=before) | also
    python = ".".join(str(part) for part in sys.version_info[:2])
    tables = hashlib.sha256(json.dumps([core, optional], sort_keys=True).encode()).hexdigest()
    if stamp and wanted <= before and stamp[:2] == (python, tables) and stamp.place in ("", place):
        return

    started = time.monotonic()
    extras = (before - rivals(wanted)) | wanted
    uv = shutil.which("uv")
    by = "uv, found on the PATH" if uv else "pip"
    extra = f"; extras: {', '.join(sorted(extras))}" if extras else ""
    print(f"setup: Python {python}, {because}{extra}; by {by}", flush=True)
    # Resolve links: if this runs from the `.venv` that is about to go, only the real file will remain.
    interpreter = os.path.realpath(sys.executable)
    obstacle = reason_to_rebuild(venv, stamp, python, wanted, place)
    if obstacle:
        print(f"setup: {obstacle}: making it anew", flush=True)
        # The stamp goes first, so that a half-deleted folder never looks finished.
        stamp_path.unlink(missing_ok=True)
        shutil.rmtree(venv)
    if not venv.exists():
        make_venv(venv, uv, interpreter, python)
    size = "several GB; " if target != "cpu" else ""
    print(f"setup: installing into .venv ({size}progress is in .venv/setup.log)", flush=True)
    (venv / "setup.log").unlink(missing_ok=True)  # of the previous set-up
    if "torch-cpu" in extras:
        # Installed apart, and allowed to fail: PyPI has a PyTorch too, but a larger one.
        from_its_index = ("--no-deps", "--extra-index-url", TORCH_CPU_INDEX, *optional["torch-cpu"])
        status, log = run_installer(venv, uv, *from_its_index)
        if status != 0 or PYPI_TORCH.search(log):
            print(f"setup: taking PyPI's PyTorch, with CUDA: {TORCH_CPU_INDEX} is out of reach or lacks it", flush=True)
    wanted_lines = [*core, *(line for extra in sorted(extras) for line in optional[extra])]
    status, log = run_installer(venv, uv, *wanted_lines)
    if status != 0:
        raise SetupError(why_install_failed(log))
    check_installed(venv, wanted_lines)
    Stamp(python, tables, extras, place).write(stamp_path)
    print(f"setup: done in {time.monotonic() - started:.0f} s", flush=True)


def dependency_tables(pyproject: Path) -> tuple[list[str], dict[str, list[str]]]:
    """The requirement lines of the project itself, and those of each extra."""
    import tomllib  # here, since Python 3.10 has none and reads this file's top as well

    with pyproject.open("rb") as file:
        project = tomllib.load(file)["project"]
    return project["dependencies"], project["optional-dependencies"]


def cuda_that_fits(asked: str, installed: frozenset[str]) -> tuple[str, str]:
    """The target `12`, `13` or `cpu`, and the reason."""
    if asked != "auto":
        return asked, f"CUDA={asked} as asked"
    sys.path.insert(0, str(ROOT))
    from common.cuda import driver

    version = driver.driver_version()
    if version is None:
        why = driver.no_device_reason() or "the NVIDIA driver does not report its version"
        return "cpu", ". ".join(filter(None, (f"CPU only: {why}", driver.no_device_remedy())))
    supports = f"the NVIDIA driver supports CUDA {version[0]}.{version[1]}"
    if version[0] < min(driver.OLDEST_GPU):
        return "cpu", f"CPU only since {supports}; update it to 525 or newer to use the GPU"
    newest = driver.newest_cuda()
    if newest is None or newest < max(major for major in driver.OLDEST_GPU if major <= version[0]):
        supports += f", but the GPU, {driver.devices()[0].sm}, is too old for {'it' if newest else 'CUDA 12'}"
    if newest is None:
        return "cpu", f"CPU only since {supports}"
    return "12" if "cuda12" in installed else str(newest), supports


def extras_for(target: str, *, torch: bool, jax: bool, dev: bool, installed: frozenset[str]) -> frozenset[str]:
    """The extras of pyproject.toml for a target and its options."""
    extras = {"dev"} if dev else set()
    if target != "cpu":
        extras |= {f"cuda{target}", f"torch-cuda{target}", f"jax-cuda{target}"}
    else:
        if torch and not installed & {"torch-cuda12", "torch-cuda13"}:
            extras.add("torch-cpu")
        if torch and dev:
            extras.add("loops")
        if jax and not installed & {"jax-cuda12", "jax-cuda13"}:
            extras.add("jax-cpu")
        if dev and not installed & {"cuda12", "cuda13"}:
            extras.add("compile")
    return frozenset(extras)


def rivals(wanted: frozenset[str]) -> frozenset[str]:
    """The extras that conflict with these."""
    sides = [*CONFLICTS, *((right, left) for left, right in CONFLICTS)]
    return frozenset().union(*(right for left, right in sides if left & wanted))


def reason_to_rebuild(venv: Path, stamp: Stamp | None, python: str, wanted: frozenset[str], place: str) -> str | None:
    """Why an existing `.venv` must be made anew; None if it can be extended, or does not exist."""
    if not venv.exists():
        return None
    if stamp is None:
        return ".venv is half-made or of other making"
    if stamp.python != python:
        return f".venv is of Python {stamp.python}, this is {python}"
    if stamp.place not in ("", place):
        return f".venv was made in {Path(stamp.place).parent}"
    in_the_way = stamp.extras & rivals(wanted)
    if in_the_way:
        return f".venv has {', '.join(sorted(in_the_way))}, which cannot stay beside {', '.join(sorted(wanted))}"
    return None


def make_venv(venv: Path, uv: str | None, interpreter: str, python: str) -> None:
    """Make the virtual environment, with pip in it, from that interpreter of that version."""
    command = [uv, "venv", "--seed", "--python", interpreter] if uv else [interpreter, "-m", "venv"]
    made = ended([*command, str(venv)])
    if made.returncode == 0:
        return
    output = made.stdout + made.stderr
    if re.search("ensurepip|No module named", output):
        raise SetupError(
            f"{interpreter} lacks its venv module; install it (Debian, Ubuntu: sudo apt install python{python}-venv), "
            "or install uv (https://docs.astral.sh/uv), then run the same command again"
        )
    raise SetupError(f".venv could not be made: {last_error(output)}")


def run_installer(venv: Path, uv: str | None, *arguments: str) -> tuple[int, str]:
    """Install into `venv` with uv or pip; returns the exit status and the output, which `.venv/setup.log` keeps."""
    python = str(venv / "bin" / "python")
    # Most modules are never imported; the others are compiled at import, if Python may write bytecode.
    compiling = [] if sys.dont_write_bytecode else ["--no-compile"]
    pip = [python, "-m", "pip", "install", *compiling, "--disable-pip-version-check", "--no-input"]
    command = [uv, "pip", "install", "--python", python] if uv else pip
    with (venv / "setup.log").open("a+") as log:
        begin = log.tell()
        run = subprocess.run(
            [*command, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables(), check=False
        )
        log.seek(begin)
        return run.returncode, log.read()


def check_installed(venv: Path, requirements: list[str]) -> None:
    """Raise SetupError unless these packages are in `venv` and the first ones can be imported."""
    names = [re.split(r"[^\w.-]", line)[0] for line in requirements]
    command = [str(venv / "bin" / "python"), "-c", STARTS, *names]
    run = ended(command)
    if run.returncode != 0:
        raise SetupError(
            f"installed, but not usable from .venv: {last_error(run.stderr)}; "
            "look for target, prefix or root in `.venv/bin/python -m pip config list`"
        )


def ended(command: list[str]) -> "subprocess.CompletedProcess[str]":
    """A command that has run, with its output."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=variables(), check=False
    )


def variables() -> dict[str, str]:
    """The environment, without what would make pip, uv or Python look elsewhere than in `.venv`."""
    kept = {name: text for name, text in os.environ.items() if not INSTALLERS.match(name) or REACHING.search(name)}
    return {**kept, "PIP_USER": "0"}  # more than a file of pip's may say


def why_install_failed(log: str) -> str:
    """One line with the last error of pip or uv, and the way out."""
    if NO_NETWORK.search(log):
        return (
            f"packages cannot be fetched, is there a network? ({last_error(log)}); run the same command again when "
            "there is, or name a mirror in PIP_INDEX_URL (pip) or UV_DEFAULT_INDEX (uv)"
        )
    return f"installing failed: {last_error(log)}; all of it is in .venv/setup.log"


def last_error(output: str) -> str:
    """The last line that begins with `error`, as pip and uv write it; otherwise the last line."""
    lines = [line.strip(" \t│├╰─▶×") for line in output.splitlines() if line.strip(" \t│├╰─▶×")]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["it said nothing"])[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
