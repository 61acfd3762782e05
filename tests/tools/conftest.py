from __future__ import annotations

import sys
from pathlib import Path

import pytest

from common.cuda import driver
from tests.tools.machine import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(sys, "executable", str(made.python))
    monkeypatch.setattr(driver, "driver_version", lambda: None)
    monkeypatch.setenv("PATH", str(made.programs))
    monkeypatch.setenv("FAKE_LOG", str(made.log))
    for variable in ("VENV_FAILS", "INDEX_FAILS", "INSTALL_FAILS", "INSTALL_SAYS", "IMPORT_FAILS"):
        monkeypatch.delenv(variable, raising=False)
    return made
