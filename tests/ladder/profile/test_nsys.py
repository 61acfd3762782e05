from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import UsageError
from ladder import doctor
from ladder.profile import nsys
from ladder.profile.trace import ProfileError

# Acts as nsys does where it matters: says its version, runs what it wraps, copies a report into a "database".
WORKING = """#!/bin/sh
case "$1" in
--version) echo "NVIDIA Nsight Systems version {version}-253236389321v0" ;;
profile) shift; while [ "$1" != "-o" ]; do shift; done; echo recorded > "$2.nsys-rep"; shift 2; "$@" ;;
export)
    for argument in "$@"; do case "$argument" in --output=*) output="${{argument#--output=}}" ;; esac; done
    for report in "$@"; do :; done
    printf 'Processing 405 events: [1%%]\\rProcessing 405 events: [100%%]\\n'
    cat "$report" > "$output" ;;
esac
"""
TOOLKIT = """#!/bin/sh
echo "Error: Nsight Systems 2024.5.1 hasn't been installed with CUDA Toolkit 12.6"
exit 1
"""


def program(path: Path, text: str = WORKING, version: str = "2025.3.2.367") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(version=version) if text is WORKING else text)
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root folder without nsys; `usr/bin` is the PATH and `home` the home folder."""
    monkeypatch.setattr(nsys, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'usr/bin'}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NSYS", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TOOLKIT, "Error: Nsight Systems 2024.5.1 hasn't been installed with CUDA Toolkit 12.6"),
        ("#!/bin/sh\nkill -SEGV $$\n", "failed with exit code -11"),
        ("#!/bin/sh\n", "prints no version: no message"),
        ("#!/bin/sh\nexec sleep 60\n", "has not ended within 0.5 s"),
        ("\x7fELF of another machine", "cannot be run: Exec format error"),
    ],
)
def test_a_named_nsys_that_does_not_work_is_refused_in_a_line(
    machine: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setattr(nsys, "VERSION_TIMEOUT_S", 0.5)
    named = program(machine / "nsys", text)
    monkeypatch.setenv("NSYS", str(named))
    with pytest.raises(UsageError) as caught:
        nsys.find()
    line = str(caught.value)
    assert line.startswith(f"NSYS={named}: ")
    assert line.endswith("; set it to an nsys that works, or unset NSYS")
    assert said in line
    (found,) = [one for one in doctor.doctor() if one.what == "nsys"]
    assert (found.found, found.optional) == (line, True)


@pytest.mark.parametrize(
    "place",
    [
        "usr/bin/nsys",
        "opt/nvidia/nsight-systems/2024.6.2/target-linux-x64/nsys",
        "opt/nvidia/nsight-systems-cli/2024.6.2/target-linux-sbsa-armv8/nsys",
        "usr/local/cuda-12.6/nsight-systems-2024.6.2/bin/nsys",
        "usr/local/cuda/bin/nsys",
        "usr/lib/nsight-systems/bin/nsys",
        "home/nsight-systems/2024.6.2/bin/nsys",
        "home/opt/nvidia/nsight-systems/2024.6.2/bin/nsys",
    ],
)
def test_all_usual_folders_are_searched(machine: Path, place: str) -> None:
    assert nsys.find() is None
    put = program(machine / place)
    assert nsys.find() == put


def test_among_several_the_preferred_one_is_used(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each program added is preferred to those before it."""
    for place in (
        "opt/nvidia/nsight-compute/2026.1.0/host/target-linux-x64/nsys",
        "usr/local/cuda-13.0/bin/nsys",
        "opt/nvidia/nsight-systems/2024.9.1/bin/nsys",
        "home/nsight-systems-2024.10.1/bin/nsys",
        "opt/nvidia/nsight-systems-cli/2025.1.3/bin/nsys",
        "usr/bin/nsys",
    ):
        put = program(machine / place)
        assert nsys.find() == put, place
    named = program(machine / "elsewhere/my-nsys")
    monkeypatch.setenv("NSYS", str(named))
    assert nsys.find() == named


def test_a_program_that_does_not_work_is_skipped(machine: Path) -> None:
    program(machine / "usr/bin/nsys", TOOLKIT)
    program(machine / "opt/nvidia/nsight-systems/2025.1.1/bin/nsys", "#!/no/such/shell\n")
    program(machine / "opt/nvidia/nsight-systems/2025.1.0/bin/nsys").chmod(0o644)
    works = program(machine / "opt/nvidia/nsight-systems/2024.1.1/bin/nsys")
    assert nsys.find() == works


@pytest.mark.parametrize("named", ["missing", "folder", "data"])
def test_nsys_in_the_environment_must_be_a_program(machine: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    (machine / "folder").mkdir()
    (machine / "data").write_text("no program")
    program(machine / "usr/bin/nsys")
    monkeypatch.setenv("NSYS", str(machine / named))
    with pytest.raises(UsageError, match=rf"^NSYS=\S+/{named} is not an executable file; .*unset NSYS$"):
        nsys.find()


def test_version(tmp_path: Path) -> None:
    assert nsys.nsys_version(program(tmp_path / "nsys")) == "2025.3.2.367-253236389321v0"
    with pytest.raises(ProfileError, match=r"hasn't been installed with CUDA Toolkit 12\.6"):
        nsys.nsys_version(program(tmp_path / "toolkit", TOOLKIT))
    with pytest.raises(ProfileError, match="prints no version: something else"):
        nsys.nsys_version(program(tmp_path / "other", "#!/bin/sh\necho something else\n"))
    with pytest.raises(ProfileError, match="cannot be run: No such file"):
        nsys.nsys_version(tmp_path / "missing")


def test_a_command_writes_the_requested_report(tmp_path: Path) -> None:
    report = tmp_path / "naive.nsys-rep"
    wrapped = [sys.executable, "-c", "raise SystemExit(3)"]
    done = subprocess.run(nsys.command(program(tmp_path / "nsys"), report, wrapped))
    assert done.returncode == 3
    assert report.read_text() == "recorded\n"


def test_export(tmp_path: Path) -> None:
    report, sqlite = tmp_path / "naive.nsys-rep", tmp_path / "naive.sqlite"
    report.write_text("new")
    sqlite.write_text("old")
    nsys.export(program(tmp_path / "nsys"), report, sqlite)
    assert sqlite.read_text() == "new"
    report.unlink()
    with pytest.raises(ProfileError, match=r"left no report \S+naive\.nsys-rep"):
        nsys.export(program(tmp_path / "nsys"), report, sqlite)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "printf 'Processing: [1%%]\\rImport failed: no such version\\n\\n' >&2; exit 1",
            "exit code 1: Import failed: no such",
        ),
        ("printf 'Processing: [1%%]\\rfailed on stdout\\n'; exit 2", "exit code 2: failed on stdout"),
        ("exit 4", "exit code 4: no message"),
        ("kill -9 $$", "exit code -9"),
        ("echo done", r"wrote no \S+naive.sqlite: done"),
    ],
)
def test_a_failing_export_gives_the_reason_in_one_line(tmp_path: Path, script: str, says: str) -> None:
    report = tmp_path / "naive.nsys-rep"
    report.write_text("recorded")
    with pytest.raises(ProfileError, match=says) as raised:
        nsys.export(program(tmp_path / "nsys", f"#!/bin/sh\n{script}\n"), report, tmp_path / "naive.sqlite")
    assert "\n" not in str(raised.value)
