"""Launch shapes: each computes what its kernel's double does, and what is measured, kept and chosen among them."""

from __future__ import annotations

import itertools
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.cuda.compile import compile_cubin
from common.problem import Problem, initial_params
from ladder.verify.gates import FirstBatches, verify_first_update
from stages.classic import r1_naive
from stages.engine.launch_shapes import PLAIN, FixedShapes, Shape, Tunable
from stages.engine.step import RecipeTrainer
from stages.engine.workspace import KERNELS
from stages.shapes import r1_tuned
from stages.shapes.shape_sweeps import Candidate, Sweep, Sweeps
from tests.cpu_cuda.shim import KernelFault, Shim, Toolchain, requires_compiler
from tests.cpu_cuda.sources import copy_changed
from tests.kernels.cases import Case, all_cases, in_shape
from tests.nvrtc import requires_nvrtc
from tests.stages.engine.test_parts_on_cpu import ShimDevice
from tests.stages.engine.test_step import random_split

CASES = 3  # of each shape, drawn anew in every run
SMALL: dict[str, tuple[int, ...]] = {
    "gemm_naive": (5, 7, 3, 1, 0),
    "add_bias": (3, 5),
    "relu": (17,),
    "relu_backward": (17,),
    "bias_gradient": (5, 3),
    "softmax": (5, 3),
    "softmax_xent_backward": (5, 3),
    "softmax_xent_totals": (5, 3),
    "sgd_update": (17,),
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tuning"


class TimingDevice(ShimDevice):
    """Kernels on the CPU, and times that are told: in us, by a launch's place among those that are right."""

    name = "a CPU"

    def __init__(self, shim: Shim, time_us: Callable[[int], float] = lambda place: 10.0 - place % 4) -> None:
        super().__init__(shim)
        self._time_us = time_us
        self.sources = "0123"
        self.swept = 0

    def samples(self, candidates: Sequence[Callable[[], None]]) -> list[list[float]]:
        self.swept += 1
        return [[self._time_us(place) * 1e-6 * noise for noise in (1, 1.01, 1.3)] for place in range(len(candidates))]

    def source_key(self, source: Path) -> str:
        return self.sources


def few_cases(kernel: str, count: int = CASES) -> Iterator[Case]:
    """Some of a kernel's, the seed of which is in what a failure shows."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201
    cases = list(all_cases(kernel, np.random.default_rng(seed)))
    yield from random.Random(seed).sample(cases, min(count, len(cases)))


def mismatch(shim: Shim, case: Case) -> str:
    args = case.copy_args()
    shim.launch(case.kernel, case.grid, case.block, *args.values(), macros=case.macros, seed=1)
    return case.mismatch(args)


@requires_compiler
@pytest.mark.parametrize("kernel", PLAIN)
def test_every_shape_computes_what_the_double_does(kernel: str, shim: Shim) -> None:
    for shape in PLAIN[kernel].shapes:
        for case in few_cases(kernel):
            assert mismatch(shim, in_shape(case, shape)) == "", shape


@requires_compiler
@pytest.mark.parametrize(
    ("kernel", "right", "wrong"),
    [
        ("gemm_naive", "m - 1)", "m)"),
        ("gemm_naive", "n - 1)", "n + 2)"),
        ("gemm_naive", "out_row >= m", "out_row > m"),
        ("gemm_naive", "out_col >= n", "false"),
        ("gemm_naive", "r < TILE_ROWS; ++r) {", "r < 1; ++r) {"),
        ("gemm_naive", "*b_next[c];", "*b_next[0];"),
        ("add_bias", "e < ELEMENTS", "e < ELEMENTS - 1"),
        ("sgd_update", "e * blockDim.x", "e"),
        ("relu", "i < count", "i <= count"),
        ("bias_gradient", "i < BIAS_ROWS", "i < 8"),
        ("softmax_xent_totals", "TOTALS_THREADS / 2", "128"),
    ],
)
def test_a_kernel_that_is_wrong_in_other_shapes_alone_is_caught(
    kernel: str, right: str, wrong: str, tmp_path: Path, toolchain: Toolchain
) -> None:
    source = KERNELS / PLAIN[kernel].file
    changed = copy_changed(source, tmp_path, lambda text: text.replace(right, wrong))
    assert changed.read_text() != source.read_text()
    shim = Shim([changed], toolchain)

    def is_right(case: Case) -> bool:
        try:
            return mismatch(shim, case) == ""
        except KernelFault:
            return False

    others = [shape for shape in PLAIN[kernel].shapes if PLAIN[kernel].macros(shape)]
    some = [shape for shape in others if shape.tile in ((1, 1), (4, 4), (2, 1))][:3]
    cases = list(all_cases(kernel, np.random.default_rng()))
    assert not all(is_right(in_shape(case, shape)) for shape, case in itertools.product(some, cases))


@requires_nvrtc
@pytest.mark.parametrize("arch", ["sm_75", "sm_120"])
def test_every_shape_compiles_without_spills(arch: str) -> None:
    compiled = {
        (tunable.file, tunable.macros(shape)): kernel for kernel, tunable in PLAIN.items() for shape in tunable.shapes
    }
    for (file, macros), kernel in compiled.items():
        used = compile_cubin(KERNELS / file, arch, macros).resources[kernel]
        assert (used.spill_stores, used.spill_loads, used.stack_frame) == (0, 0, 0), (kernel, macros)


@pytest.mark.parametrize(("kernel", "tunable"), PLAIN.items(), ids=PLAIN)
def test_a_shape_is_one_that_a_gpu_can_have_and_has_a_place_of_its_own(kernel: str, tunable: Tunable) -> None:
    assert all(0 < shape.block[0] * shape.block[1] <= 1024 for shape in tunable.shapes)
    assert tunable.macros(tunable.fixed) == ()
    assert len({tunable.place(shape) for shape in tunable.shapes}) == len(tunable.shapes) == len(set(tunable.shapes))
    assert kernel in SMALL


def test_the_tuned_rung_changes_shapes_and_nothing_else() -> None:
    assert r1_tuned.STAGE.below == r1_naive.STAGE.name
    assert r1_tuned.STAGE.changed == "shapes: TunedShapes"


@requires_compiler
@pytest.mark.parametrize("kernel", PLAIN)
def test_a_sweep_measures_every_shape_and_is_kept(kernel: str, shim: Shim) -> None:
    device, sizes = TimingDevice(shim), SMALL[kernel]
    sweep = Sweeps(device).measure(kernel, sizes)
    assert [candidate.shape for candidate in sweep.candidates] == list(PLAIN[kernel].shapes)
    assert all(len(candidate.samples_us) == 3 and not candidate.left_out for candidate in sweep.candidates)
    assert sweep.chosen == 3
    assert sweep.shape == PLAIN[kernel].shapes[3]
    assert Sweeps(TimingDevice(shim)).get(kernel, sizes) == sweep


@requires_compiler
def test_what_is_kept_is_of_this_gpu_these_sources_and_these_sizes(shim: Shim) -> None:
    device = TimingDevice(shim)
    Sweeps(device).measure("relu", (17,))
    assert Sweeps(device).get("relu", (18,)) is None
    assert Sweeps(device).get("relu_backward", (17,)) is None
    device.sources = "changed"
    assert Sweeps(device).get("relu", (17,)) is None
    device.sources, device.name = "0123", "another GPU"
    assert Sweeps(device).get("relu", (17,)) is None
    device.name = "a CPU"
    assert Sweeps(device).get("relu", (17,)) is not None


@requires_compiler
def test_a_sweep_over_other_shapes_is_none(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    device = TimingDevice(shim)
    Sweeps(device).measure("softmax", (5, 3))
    monkeypatch.setattr("stages.engine.launch_shapes.BLOCK_THREADS", (32,))
    fewer = Tunable(**{**PLAIN["softmax"].__dict__, "shapes": PLAIN["softmax"].shapes[:2]})
    monkeypatch.setitem(PLAIN, "softmax", fewer)
    assert Sweeps(device).get("softmax", (5, 3)) is None


@requires_compiler
@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1}', b"\xff"])
def test_a_damaged_file_is_named_and_measured_anew(content: bytes, shim: Shim, cache: Path) -> None:
    device = TimingDevice(shim)
    Sweeps(device).measure("relu", (17,))
    (file,) = cache.iterdir()
    file.write_bytes(content)
    sweeps = Sweeps(device)
    assert sweeps.damaged == file
    assert sweeps.get("relu", (17,)) is None
    sweeps.measure("relu", (17,))
    assert Sweeps(device).damaged is None
    assert Sweeps(device).get("relu", (17,)) is not None


class Refusing(TimingDevice):
    """Launches blocks of 64 threads not at all, and those of 128 for nothing."""

    def _launch(self, name: str, how: dict[str, Any], grid: Any, block: Any, *args: Any) -> None:
        if block[0] == 64:
            raise RuntimeError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many\nregisters")
        if block[0] != 128:
            super()._launch(name, how, grid, block, *args)


@requires_compiler
@pytest.mark.parametrize("kernel", ["relu", "softmax", "softmax_xent_totals"])
def test_a_shape_that_is_refused_or_wrong_is_named_and_cannot_win(kernel: str, shim: Shim) -> None:
    device = Refusing(shim, lambda place: 10.0 - place)
    sweep = Sweeps(device).measure(kernel, SMALL[kernel])
    left_out = {candidate.shape.block[0]: candidate.left_out for candidate in sweep.candidates if candidate.left_out}
    assert left_out == {
        64: "RuntimeError: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many",
        128: "computes something else",
    }
    assert all(not candidate.samples_us for candidate in sweep.candidates if candidate.left_out)
    assert sweep.shape.block[0] not in (64, 128)


class Breaking(TimingDevice):
    """A GPU on which nothing runs any more once a block had 512 threads."""

    broken = False

    def _launch(self, name: str, how: dict[str, Any], grid: Any, block: Any, *args: Any) -> None:
        self.broken |= block[0] == 512
        if self.broken:
            raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")
        super()._launch(name, how, grid, block, *args)


@requires_compiler
def test_nothing_is_kept_of_a_gpu_that_broke_on_the_way(shim: Shim) -> None:
    with pytest.raises(RuntimeError, match="ILLEGAL_ADDRESS"):
        Sweeps(Breaking(shim)).measure("relu", (17,))
    assert Sweeps(TimingDevice(shim)).get("relu", (17,)) is None


@pytest.mark.parametrize(
    ("medians", "chosen"),
    [([10.0, 9.9, 9.7], 2), ([10.0, 9.9, 9.81], 0), ([10.0, 9.0, 8.9], 1), ([10.0], 0), ([10.0, None, 9.0], 2)],
)
def test_only_what_is_clearly_faster_wins(medians: list[float | None], chosen: int) -> None:
    tried = [Candidate(Shape((32, 1)), [] if time is None else [time / 2, time, time * 2]) for time in medians]
    assert Sweep(tried).chosen == chosen


@requires_compiler
@pytest.mark.parametrize("hidden", [(), (6, 5)], ids=str)
def test_the_tuned_step_is_the_oracle_s_and_tunes_once(hidden: tuple[int, ...], shim: Shim) -> None:
    assert r1_tuned.STAGE.recipe is not None
    problem = Problem(inputs=9, classes=4, hidden=hidden, batch_size=5, metrics_every=1)
    split = random_split(12, 9, 4)
    device = TimingDevice(shim, lambda place: 30.0 - place % 23)
    trainer = RecipeTrainer(r1_tuned.STAGE.recipe, problem, split, device)
    asked = r1_tuned.operations(problem, split, TimingDevice(shim))
    assert device.swept == len(asked) > 7
    assert {kernel for kernel, _ in asked} == set(PLAIN) - ({"relu", "relu_backward"} if not hidden else set())
    params = initial_params(problem, 0)
    trainer.load_params(params)
    trainer.run_epoch(0)
    seen = split.first(10)
    checks = verify_first_update(
        "float32",
        FirstBatches.of(problem, 2, params, seen.images, seen.labels),
        trainer.read_params(),
        trainer.last_metrics(),
    )
    assert [check for check in checks if not check.passed] == []
    RecipeTrainer(r1_tuned.STAGE.recipe, problem, split, device)
    assert device.swept == len(asked)


@requires_compiler
def test_shapes_are_asked_for_once_and_then_remembered(shim: Shim) -> None:
    class Counting(FixedShapes):
        asked = 0

        def shape(self, kernel: str, sizes: tuple[int, ...]) -> Shape:
            self.asked += 1
            return super().shape(kernel, sizes)

    shapes = Counting(TimingDevice(shim))
    assert shapes("relu", 5) is shapes("relu", 5)
    assert shapes("relu", 5) is not shapes("relu", 6)
    assert shapes.asked == 2
