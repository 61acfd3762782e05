"""The bundle for a machine without a network: what it holds, and what is said of one that cannot be unpacked."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.tools.libraries import MACHINE_CODE, Code, container, library
from tools import cuda12_bundle

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
PART_BYTES = 1 << 19
NOISE = random.Random(0).randbytes(1_300_000)  # which nothing compresses
SM_80, SM_90 = Code(MACHINE_CODE, 80, b"code for another"), Code(MACHINE_CODE, 90, b"code for our own")


def write_wheel(folder: Path) -> None:
    """A package `tiny` that brings a library with code for two GPUs, one file of cuDNN too many, and noise."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny/__init__.py", "STATE = 'imported'\n")
        wheel.writestr("tiny/noise", NOISE)
        wheel.writestr("nvidia/cudnn/lib/libcudnn_ops.so.9", library(container(SM_80, SM_90)))
        wheel.writestr("nvidia/cudnn/lib/libcudnn_engines_precompiled.so.9", "large")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the package `tiny` in three parts, packed once."""
    folder = tmp_path_factory.mktemp("packed")
    write_wheel(folder / "wheels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(folder / "wheels"))
        patch.setattr(cuda12_bundle, "project_requirements", lambda: ["tiny"])
        patch.setattr(cuda12_bundle, "MIB", PART_BYTES)
        assert cuda12_bundle.main(["pack", str(folder / "bundle"), "--python", PYTHON, "--part-mib", "1"]) == 0
    return folder / "bundle"


@pytest.fixture
def bundle(packed: Path, tmp_path: Path) -> Path:
    """A copy of that bundle, to be damaged."""
    return shutil.copytree(packed, tmp_path / "bundle")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line that is said of this command, which has to fail."""
    capsys.readouterr()
    assert cuda12_bundle.main([str(word) for word in arguments]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    return said[0]


def test_what_was_packed_can_be_imported_there(bundle: Path, tmp_path: Path) -> None:
    parts = sorted(bundle.glob("part-*.xz"))
    assert len(parts) > 2
    assert all(part.stat().st_size <= PART_BYTES for part in parts)
    assert cuda12_bundle.main(["unpack", str(bundle), str(tmp_path / "venv")]) == 0
    python = tmp_path / "venv" / "bin" / "python"
    importing = subprocess.run(
        [python, "-c", "import tiny; print(tiny.STATE)"], capture_output=True, text=True, check=True
    )
    assert importing.stdout == "imported\n"
    site = tmp_path / "venv" / "lib" / f"python{PYTHON}" / "site-packages"
    assert (site / "tiny" / "noise").read_bytes() == NOISE
    libraries = site / "nvidia" / "cudnn" / "lib"
    assert [path.name for path in libraries.iterdir()] == ["libcudnn_ops.so.9"]
    assert (libraries / "libcudnn_ops.so.9").read_bytes() == library(
        container(SM_80._replace(payload=bytes(16)), SM_90)
    )


def test_a_part_that_is_missing(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bundle / "part-01.xz").unlink()
    assert "lacks part-01.xz" in refused(capsys, "unpack", bundle, tmp_path / "venv")


def test_a_part_that_is_damaged_leaves_no_environment(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = bundle / "part-01.xz"
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    assert "part-01.xz is damaged" in refused(capsys, "unpack", bundle, tmp_path / "venv")
    assert not (tmp_path / "venv").exists()


def test_another_python(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = json.loads((bundle / "bundle.json").read_text())
    (bundle / "bundle.json").write_text(json.dumps(manifest | {"python": "3.5"}))
    assert f"packed for Python 3.5, this is {PYTHON}" in refused(capsys, "unpack", bundle, tmp_path / "venv")


def test_a_folder_that_holds_no_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "has no bundle.json" in refused(capsys, "unpack", tmp_path, tmp_path / "venv")


def test_nothing_is_overwritten(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not empty" in refused(capsys, "pack", bundle)
    assert "exists" in refused(capsys, "unpack", bundle, bundle)
    assert (bundle / "part-00.xz").exists()


def test_a_package_that_pip_cannot_find(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    folder = tmp_path / "bundle"
    assert "No matching distribution" in refused(capsys, "pack", folder, "--with", "no-such-package")
    assert not list(folder.iterdir())
