"""How the tuning of the references says what is wrong."""

from __future__ import annotations

import sys

import pytest

from tools import try_references


def test_a_family_there_is_not_is_refused_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["try_references", "torch-compil"])
    with pytest.raises(SystemExit) as ended:
        try_references.main()
    assert ended.value.code == 2
    complaint = capsys.readouterr().err.splitlines()[-1]
    assert "invalid choice: 'torch-compil'" in complaint
    assert all(family in complaint for family in try_references.SECONDS)


@pytest.mark.parametrize("asked", [[], ["all"], ["kernels", "torch-compile"]])
def test_the_families_that_are_asked_for_are_run_or_else_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["try_references", *asked])
    monkeypatch.setattr(try_references, "run_apart", lambda command, seconds: f"{command[-1]} for {seconds} s")
    try_references.main()
    assert capsys.readouterr().out.splitlines() == [
        f"{family}: {family} for {try_references.SECONDS[family] + 30} s"
        for family in (try_references.SECONDS if asked in ([], ["all"]) else asked)
    ]


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ("print('a warning', file=sys.stderr)", "done"),
        ("raise ValueError('no such data')", "failed, status 1: ValueError: no such data"),
        ("sys.exit(3)", "failed, status 3: it said nothing"),
        ("os.kill(os.getpid(), 9)", "failed, status -9: it said nothing"),
        ("time.sleep(60)", "stopped, out of time"),
    ],
)
def test_a_process_of_its_own_tells_how_it_ended(script: str, ended: str) -> None:
    command = [sys.executable, "-c", f"import os, sys, time; {script}"]
    assert try_references.run_apart(command, 2.0 if "sleep" in script else 60.0) == ended
