"""`run_ladder.py tune` with kernels executed on the CPU, and invented times."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ladder.records.tuning import load_tuning
from run_ladder import main
from stages.shapes.launch_shapes import SHAPES
from tests.common.data.idx_writer import quartet_arrays, write_files
from tests.cpu_cuda.shim import Shim, requires_compiler
from tests.stages.shapes.test_launch_shapes import TimingDevice

pytestmark = requires_compiler
SMALL = ["tune", "--batch-size=5", "--hidden=3"]
PRODUCTS = 5  # of a step of 36-3-4


@pytest.fixture
def gpu(shim: Shim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TimingDevice:
    """Three shapes, the last of them the fastest; an empty cache, small images."""
    device = TimingDevice(shim, lambda place: 9.0 - place)
    monkeypatch.setattr("stages.shapes.shape_sweeps.SHAPES", SHAPES[:3])
    monkeypatch.setattr("ladder.tune.open_gpu", lambda: device)
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LADDER_DATA_DIR", str(write_files(tmp_path / "digits", quartet_arrays(40, 10, (6, 6), 4))))
    monkeypatch.chdir(tmp_path)
    return device


def test_tuning_measures_keeps_prints_and_draws(gpu: TimingDevice, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--out", "out"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    record = load_tuning(Path("out"))
    assert (record.network, record.batch_size, record.gpu) == ("36-3-4", 5, gpu.name)
    assert len(record.kernels) == gpu.swept == PRODUCTS
    assert {kernel.chosen for kernel in record.kernels} == {2}
    assert not any(kernel.was_kept for kernel in record.kernels)
    assert "gemm_shaped 5 x 3 over 36" in out
    assert "tuned, 4 x 8, 1 x 2: 7.07 us, 1.29x as fast as 16 x 16, 1 x 1" in out
    assert "Heat map: out/heat_map.svg" in out
    assert Path("out/heat_map.svg").read_text().startswith("<?xml")


def test_kept_sweeps_are_measured_again_only_with_again(gpu: TimingDevice, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--out", "first"]) == 0
    assert main([*SMALL, "--out", "second"]) == 0
    assert gpu.swept == PRODUCTS
    first, second = (load_tuning(Path(name)) for name in ("first", "second"))
    assert all(kernel.was_kept for kernel in second.kernels)
    assert [kernel.tried for kernel in first.kernels] == [kernel.tried for kernel in second.kernels]
    assert main([*SMALL, "--again", "--out", "third"]) == 0
    assert gpu.swept == 2 * PRODUCTS
    assert main(["tune", "--batch-size=6", "--hidden=3", "--out", "other"]) == 0
    assert gpu.swept > 2 * PRODUCTS
    assert capsys.readouterr().err == ""


def test_ctrl_c_keeps_the_finished_sweeps(gpu: TimingDevice, capsys: pytest.CaptureFixture[str]) -> None:
    samples, allowed = gpu.samples, [2]

    def interrupted(candidates: Sequence[Callable[[], None]]) -> list[list[float]]:
        if gpu.swept == allowed[0]:
            raise KeyboardInterrupt
        return samples(candidates)

    gpu.samples = interrupted  # type: ignore[method-assign]
    assert main([*SMALL, "--out", "out"]) == 130
    allowed[0] = -1
    assert main([*SMALL, "--out", "out"]) == 0
    assert gpu.swept == PRODUCTS
    kept = [kernel.was_kept for kernel in load_tuning(Path("out")).kernels]
    assert kept == [True] * 2 + [False] * (PRODUCTS - 2)
    said = capsys.readouterr().out
    assert f"interrupted; 2 of {PRODUCTS} sweeps are kept; the same command does the rest" in said.splitlines()


def test_a_damaged_cache_is_one_line(gpu: TimingDevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--out", "out"]) == 0
    (file,) = (tmp_path / "cache" / "tuning").iterdir()
    file.write_text("{")
    capsys.readouterr()
    assert main([*SMALL, "--out", "out"]) == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[0], err) == (f"{file}: cannot be read; its sweeps are measured again", "")
    assert gpu.swept == 2 * PRODUCTS


def test_a_report_is_drawn_again_without_a_gpu(gpu: TimingDevice, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--out", "out"]) == 0
    drawn = Path("out/heat_map.svg").read_bytes()
    printed = capsys.readouterr().out.partition("Launch shapes of")[2]
    Path("out/heat_map.svg").unlink()
    for named in ("out", "out/tuning.json"):
        assert main(["report", named]) == 0
        assert capsys.readouterr().out.partition("Launch shapes of")[2] == printed
        assert Path("out/heat_map.svg").read_bytes() == drawn


@pytest.mark.parametrize("content", ["", "[]", json.dumps({"gpu": 1})])
def test_a_record_that_cannot_be_read_is_one_line(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tuning.json").write_text(content)
    assert main(["report", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"run_ladder.py: {tmp_path}/tuning.json: not a tuning record of this program")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--batch-size=41"], "batch size 41: digits has 40 training images; choose 40 or fewer"),
        (["--batch-size=5", "--out=a-file"], "cannot be written to"),
        (["--data-dir=nowhere"], "nowhere"),
        (["--hidden=1073741824", "--batch-size=1"], "choose smaller layers"),
    ],
)
def test_an_impossible_tuning_is_refused_in_a_line(
    argv: list[str], said: str, gpu: TimingDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a-file").touch()
    assert main(["tune", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert gpu.swept == 0


def test_a_gpu_that_breaks_is_one_line(
    gpu: TimingDevice, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(candidates: Sequence[Callable[[], None]]) -> list[list[float]]:
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS\nand more")

    monkeypatch.setattr(gpu, "samples", broken)
    assert main([*SMALL, "--out", "out"]) == 2
    err = capsys.readouterr().err
    expected = "run_ladder.py: tune gemm_shaped 5 x 3 over 36: RuntimeError: CUDA_ERROR_ILLEGAL_ADDRESS; earlier"
    assert err.startswith(expected)
    assert err.count("\n") == 1
