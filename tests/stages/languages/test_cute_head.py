"""The head in CuTe DSL: compiled for each GPU where the DSL is installed, kept on disk, and launched as its twin."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.cuda.cute_code import CuteCode
from common.problem import Problem
from ladder.machine import environment
from ladder.machine.environment import missing
from stages.engine.workspace import Setup
from stages.fusion.head_kernel import lanes
from stages.languages import cute_head
from stages.languages.cute_head import SHARED_BYTES, STAGE, CuteHead

NO_CUTE = "CuTe DSL is not installed"
ROOT = Path(__file__).parents[3]
COMPILES = """
import json, sys
from stages.languages.cute_head import head_code
for shape in ((128, 10, 256, False), (139, 10, 1024, True), (7, 3, 32, True), (5, 100, 256, False)):
    print(json.dumps([len(head_code(*shape, int(sys.argv[1])).cubin), "cutlass" in sys.modules]))
"""


@pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason=NO_CUTE)
@pytest.mark.parametrize("capability", [80, 90])
def test_it_compiles_without_a_gpu_and_once(capability: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMPILES, str(capability)]
    for again in (False, True):
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "LADDER_CACHE_DIR": str(tmp_path)}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert all(size > 4000 for size, _ in told)
        assert {imported for _, imported in told} == {not again}


class LoadingDevice:
    """A device that notes the launches of loaded code."""

    capability = 90

    def __init__(self) -> None:
        self.launched: list[tuple[str, int, int, int]] = []

    def loaded(self, cubin: bytes, name: str, shared_bytes: int) -> Callable[..., None]:
        return lambda grid, threads, *tensors: self.launched.append((name, shared_bytes, grid, threads))


@pytest.mark.parametrize(("rows", "grid", "most"), [(128, 4, 1024), (31, 1, 256), (1, 1, 32), (2000, 63, 1024)])
def test_every_row_has_its_lanes(rows: int, grid: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int, bool]] = []

    def code(rows: int, classes: int, threads: int, with_totals: bool, capability: int) -> CuteCode:
        asked.append((rows, classes, threads, with_totals))
        return CuteCode(b"", f"totals {with_totals}")

    monkeypatch.setattr(cute_head, "head_code", code)
    tensors = type("Tensors", (), {name: np.empty((rows, 10)) for name in ("logits", "dlogits", "totals")})
    device: Any = LoadingDevice()
    head = CuteHead(Setup(Problem(inputs=4, classes=10, batch_size=rows), device, tensors))  # type: ignore[arg-type]
    head(np.empty(rows), False)
    head(np.empty(rows), True)
    assert device.launched == [("totals False", 0, grid, 256), ("totals True", SHARED_BYTES, 1, most)]
    assert asked == [(rows, 10, 256, False), (rows, 10, most, True)]
    assert grid * 256 >= rows * lanes(10)


def test_without_the_dsl_it_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for need in set(STAGE.needs) - {"cute"}:
        monkeypatch.setitem(environment.NEEDS, need, ((), ()))
    assert missing(STAGE.needs) == NO_CUTE
