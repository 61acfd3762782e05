"""The cores that a process may use, with control groups in folders of our own, and where Numba keeps its code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from common.cpu import cores
from ladder.machine import environment

ALLOWED = 64
V2 = "31 23 0:28 {top} {mount} rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "32 31 0:29 {top} {mount} rw,relatime - cgroup cgroup rw,cpu,cpuacct"
Count = Callable[..., int]


@pytest.fixture
def usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Count:
    """The cores of a process by its groups, the mounts, and the quotas by group: `max 100000` of v2, -1 of v1."""
    monkeypatch.setattr(cores, "cores_allowed", lambda: ALLOWED)

    def count(groups: str, mounts: str, quotas: dict[str, str], top: str = "/") -> int:
        proc, mount = tmp_path / "proc", tmp_path / "control groups"
        proc.mkdir()
        (proc / "cgroup").write_text(groups + "\n")
        place = str(mount).replace(" ", r"\040")
        (proc / "mountinfo").write_text(mounts.format(top=top, mount=place) + "\n")
        for group, quota in quotas.items():
            folder = mount / group
            folder.mkdir(parents=True, exist_ok=True)
            if mounts == V2:
                (folder / "cpu.max").write_text(quota + "\n")
            else:
                (folder / "cpu.cfs_quota_us").write_text(quota + "\n")
                (folder / "cpu.cfs_period_us").write_text("100000\n")
        return cores.usable_cores(proc)

    return count


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ({}, ALLOWED),
        ({".": "max 100000", "user": "max 100000", "user/job": "max 100000"}, ALLOWED),
        ({"user/job": "300000 100000"}, 3),  # the process's own group
        ({"user": "250000 100000", "user/job": "max 100000"}, 2),  # the group above it, rounded down
        ({".": "400000 100000", "user": "200000 100000", "user/job": "800000 100000"}, 2),  # the smallest wins
        ({"user/job": "20000 100000"}, 1),
        ({"user/other": "100000 100000"}, ALLOWED),  # another's
        ({".": "9900000 100000"}, ALLOWED),  # above the affinity
        ({"user/job": "100000 0", "user": "nonsense"}, ALLOWED),
    ],
)
def test_the_smallest_quota_of_v2_counts(usable: Count, quotas: dict[str, str], expected: int) -> None:
    assert usable("0::/user/job", V2, quotas) == expected


@pytest.mark.parametrize(
    ("quotas", "expected"),
    [
        ({".": "-1", "docker": "-1", "docker/one": "-1"}, ALLOWED),
        ({"docker/one": "150000"}, 1),
        ({".": "-1", "docker": "500000", "docker/one": "-1"}, 5),
        ({".": "200000", "docker": "300000"}, 2),
    ],
)
def test_the_smallest_quota_of_v1_counts(usable: Count, quotas: dict[str, str], expected: int) -> None:
    assert usable("5:memory:/\n4:cpuacct,cpu:/docker/one\n0::/", V1, quotas) == expected


@pytest.mark.parametrize(("group", "expected"), [("0::/docker/one/inner", 2), ("0::/elsewhere", 4)])
def test_a_container_sees_its_own_group_at_the_top(usable: Count, group: str, expected: int) -> None:
    assert usable(group, V2, {".": "400000 100000", "inner": "200000 100000"}, top="/docker/one") == expected


def test_the_groups_whose_quotas_count_are_known(usable: Count, tmp_path: Path) -> None:
    usable("0::/user/job", V2, {"user/job": "300000 100000"})
    mount = tmp_path / "control groups"
    assert list(cores.control_groups(tmp_path / "proc")) == [mount / "user/job", mount / "user", mount]


def test_the_affinity_counts_where_nothing_else_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "cores_allowed", lambda: 3)
    assert cores.usable_cores(tmp_path) == 3


def test_the_recorded_environment_counts_the_same_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "usable_cores", lambda: 7)
    assert environment.describe()["cpu"]["cores_usable"] == 7


CODE = """
from stages.cpu.kernels.layer import add_bias, relu
print(*(type(kernel._cache).__name__ for kernel in (add_bias, relu)))
"""


@pytest.mark.parametrize(("cache", "kept"), [("cache", "FunctionCache"), ("file/cache", "NullCache")])
def test_without_a_cache_to_write_to_each_process_compiles(tmp_path: Path, cache: str, kept: str) -> None:
    (tmp_path / "file").touch()
    inherited = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment = {**inherited, "LADDER_CACHE_DIR": str(tmp_path / cache), "NUMBA_DISABLE_JIT": "0"}
    found = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == [kept, kept]
