"""The references that run on a CPU, of one network or several, and the step that the others compile, by the oracle."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from common import choice
from common.data.dataset import Split
from common.problem import Problem, initial_params
from common.trainer import Trainer
from ladder.records.run import Precision
from stages.engine.stage import Stage
from stages.references import (
    choices,
    jax_scan,
    jax_scan_bf16,
    tinygrad_jit,
    torch_dataloader,
    torch_eager,
    torch_graph,
    torch_threads,
)
from stages.references.choices import Choice
from stages.references.torch_common import TRANSPOSED_ROWS, Evaluate, RunEpoch, TorchSetup, TorchTrainer
from stages.references.torch_graph import Variant, compiled_epoch
from stages.references.torch_step import (
    compile_steps,
    evaluation_steps,
    linear_or_sum,
    mixed,
    train_steps,
)
from stages.registry import load_all
from tests.ladder.gpus import H200
from tests.stages.engine.test_step import (
    assert_each_network_follows_its_oracle,
    assert_first_updates,
    assert_validates,
    random_split,
)

STEPS = 5


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trials of PyTorch's number of threads, which test_threads.py tests and which take longer than these tests."""
    monkeypatch.setattr(torch_threads, "thread_counts", lambda: (1,))


OPTIONS = {str(variant.options): name for name, variant in jax_scan.VARIANTS.items()}  # a variant of each


def assert_trains(build: Callable[..., Trainer], problem: Problem, precision: Precision = "float32") -> None:
    """Two runs from different parameters through one trainer, each judged by the gates of a real run."""
    split = random_split(STEPS * problem.batch_size + problem.batch_size // 2, problem.inputs, problem.classes)
    trainer = build(problem, split)
    for run in range(2):
        assert_first_updates(trainer, problem, split, precision, run, problem.metrics_every - 1)
    trainer.close()


def problem_of(hidden: tuple[int, ...], batch: int) -> Problem:
    return Problem(inputs=49, classes=10, hidden=hidden, batch_size=batch, metrics_every=2)


@pytest.mark.torch
def test_pytorch_gives_back_the_parameters_that_it_was_given() -> None:
    problem = Problem(inputs=TRANSPOSED_ROWS + 3, classes=2, hidden=(1, 2 * TRANSPOSED_ROWS, 5), batch_size=4)
    trainer = TorchTrainer(problem, random_split(8, problem.inputs, 2), lambda _: lambda _: None)
    for run in range(2):
        initial = initial_params(problem, run)
        trainer.load_params(initial)
        first, second = trainer.read_params(), trainer.read_params()
        for name, tensor in initial.tensors().items():
            assert first.tensors()[name].tobytes() == tensor.tobytes()
            assert not np.shares_memory(first.tensors()[name], second.tensors()[name])


def test_tinygrad_in_whole_replays_and_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its interpreter: a replay must train on its own batches, not on those that were captured."""
    monkeypatch.delenv("PYTHON", raising=False)  # which `make PYTHON=...` exports, and tinygrad reads as a number
    helpers = pytest.importorskip("tinygrad.helpers", reason="tinygrad is not installed")
    monkeypatch.setattr(tinygrad_jit, "TOGETHER", 2)
    problem = Problem(inputs=7, classes=4, hidden=(6,), batch_size=3, metrics_every=2)
    with helpers.Context(DEV="PYTHON"):  # its device for constants, too: that of the CPU needs clang
        assert_trains(partial(tinygrad_jit.TinygradTrainer, device="PYTHON"), problem)


@pytest.mark.jax
@pytest.mark.parametrize(("hidden", "batch", "unroll"), [((33,), 16, 2), ((8,), 1, 8)], ids=str)
def test_jax_however_unrolled(hidden: tuple[int, ...], batch: int, unroll: int) -> None:
    variant = jax_scan.Variant(unroll)
    assert_trains(partial(jax_scan.JaxScanTrainer, variant=variant), problem_of(hidden, batch))


@pytest.mark.jax
@pytest.mark.parametrize(
    ("stage", "variant"),
    [*((jax_scan.STAGE, name) for name in OPTIONS.values()), (jax_scan_bf16.STAGE, "unroll 8, command buffers")],
    ids=lambda given: given if isinstance(given, str) else given.name,
)
def test_jax_trains_with_every_variant_s_options(stage: Stage, variant: str) -> None:
    build: Any = stage.build
    assert_trains(partial(build, variant=jax_scan.VARIANTS[variant]), problem_of((17,), 16), stage.precision)


@pytest.mark.jax
@pytest.mark.parametrize(("hidden", "batch"), [((), 7), ((17, 5, 9), 1)], ids=str)
def test_jax_in_bfloat16(hidden: tuple[int, ...], batch: int) -> None:
    assert_trains(jax_scan_bf16.STAGE.build, problem_of(hidden, batch), "bfloat16")


@pytest.mark.jax
@pytest.mark.parametrize("hidden", [(), (33, 17)], ids=str)
def test_every_product_of_jax_in_bfloat16_has_bfloat16_factors_and_a_float32_sum(hidden: tuple[int, ...]) -> None:
    import jax
    import jax.numpy as jnp

    layers = [
        (jnp.zeros((layer.fan_in, layer.fan_out)), jnp.zeros(layer.fan_out)) for layer in problem_of(hidden, 8).layers
    ]
    images, labels = jnp.zeros((2, 8, 49), jnp.bfloat16), jnp.zeros((2, 8), int)
    for product, factors in ((jax_scan_bf16.bfloat16_product, "bf16"), (jax_scan.float32_product, "f32")):
        epoch = jax.jit(jax_scan.epoch_of(problem_of(hidden, 8), product, 1), static_argnames="with_totals")
        given = images if factors == "bf16" else images.astype(jnp.float32)
        text = epoch.lower(layers, given, labels, with_totals=True).as_text()
        products = re.findall(
            r"stablehlo\.dot_general.* : \(tensor<\w+x(\w+)>, tensor<\w+x(\w+)>\) -> tensor<\w+x(\w+)>", text
        )
        assert len(products) == text.count("stablehlo.dot_general") >= 2 + 3 * len(hidden)
        assert set(products) == {(factors, factors, "f32")}


@pytest.mark.jax
def test_pixels_are_exact_in_the_images_of_jax_in_bfloat16() -> None:
    split = random_split(16, 49, 10)
    trainer = jax_scan_bf16.STAGE.build(problem_of((), 16), split)
    images = trainer._images  # type: ignore[attr-defined]
    assert str(images.dtype) == "bfloat16"
    np.testing.assert_array_equal(np.asarray(images, np.float32)[0], split.pixels())


@pytest.mark.jax
def test_jax_in_bfloat16_validates_on_all_test_images() -> None:
    problem = problem_of((), 16)
    trainer = jax_scan_bf16.STAGE.build(problem, random_split(48, 49, 10))
    assert_validates(trainer, problem, random_split(5, 49, 10, seed=1), 1e-2, 0.06)


@pytest.mark.jax
def test_jax_on_a_cpu_says_so() -> None:
    import jax

    trainer = jax_scan.STAGE.build(problem_of((), 4), random_split(8, 49, 10))
    on_cpu = jax.default_backend() == "cpu"
    assert trainer.device == ("cpu" if on_cpu else "gpu")
    assert trainer.detail.startswith("CPU") == on_cpu


def in_groups(setup: TorchSetup, *, amp: bool, compiled: bool) -> RunEpoch:
    """The step of the compiled references, three batches at a time, without generating code for it."""
    import torch

    steps = train_steps(setup)
    if compiled:
        steps = compile_steps(steps, {"backend": "aot_eager"})
    batches = setup.resident_batches(torch.bfloat16 if amp else torch.float32)

    def run_epoch(due: bool) -> None:
        with mixed(setup, amp=amp):
            steps(batches[:3], due)
            for batch in batches[3:]:
                steps([batch], due)

    return run_epoch


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
@pytest.mark.parametrize("compiled", [False, True], ids=["as-written", "as-traced"])
@pytest.mark.parametrize(("hidden", "batch", "precision"), [((), 7, "bfloat16"), ((8,), 1, "float32")], ids=str)
def test_the_step_that_is_compiled(hidden: tuple[int, ...], batch: int, precision: Precision, compiled: bool) -> None:
    def build(problem, train):  # type: ignore[no-untyped-def]
        return TorchTrainer(
            problem, train, lambda setup: in_groups(setup, amp=precision == "bfloat16", compiled=compiled)
        )

    assert_trains(build, problem_of(hidden, batch), precision)


def traced(variant: Variant) -> Variant:
    """The same without generating code, two steps at a time."""
    return replace(variant, unroll=min(variant.unroll, 2), compiler={"backend": "aot_eager"})


WRITTEN = [
    (stage, name)
    for stage, variants in torch_graph.VARIANTS.items()
    for name, variant in variants.items()
    if not variant.compiler and name != torch_graph.DEFAULT  # which has a test of its own
    if stage == "torch-graph" or not name.startswith("unroll")  # which precision does not change
]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
@pytest.mark.parametrize(
    ("stage", "name", "hidden"),
    [(*WRITTEN[0], ()), *((*way, (17, 40, 20)) for way in WRITTEN)],
    ids=lambda given: given.replace(" ", "-") if isinstance(given, str) else str(given),
)
def test_every_way_to_write_the_step_trains(stage: str, name: str, hidden: tuple[int, ...]) -> None:
    import torch

    torch.compiler.reset()
    amp, variant = stage == "torch-graph-amp", traced(torch_graph.VARIANTS[stage][name])

    def build(problem: Problem, train: Split) -> Trainer:
        return TorchTrainer(problem, train, lambda setup: compiled_epoch(setup, amp=amp, variant=variant)[0])

    assert_trains(build, problem_of(hidden, 31), "bfloat16" if amp else "float32")


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_variant_trains_as_the_compiler_generates_it() -> None:
    import torch

    torch.compiler.reset()
    variant = torch_graph.BOTH["unroll 1, pointwise autotuning"]

    def build(problem: Problem, train: Split) -> Trainer:
        return TorchTrainer(problem, train, lambda setup: compiled_epoch(setup, amp=False, variant=variant)[0])

    assert_trains(build, problem_of((33,), 16))
    torch.compiler.reset()


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
@pytest.mark.parametrize("name", torch_graph.BOTH)
def test_the_compiler_knows_the_options_of_every_variant(name: str) -> None:
    import torch

    compiler = torch_graph.BOTH[name].compiler
    torch.compile(lambda: None, **compiler)
    with pytest.raises(RuntimeError, match=r"Unexpected optimi.ation option"):
        torch.compile(lambda: None, options={"pointwise_max_autotune": True})


@pytest.mark.torch
@pytest.mark.parametrize("searches", [False, True])
def test_the_graph_is_of_the_variant_of_the_file_where_it_may_search(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, searches: bool
) -> None:
    problem = problem_of((33,), 16)
    variants: list[Variant] = []
    monkeypatch.setattr(choices, "FILE", tmp_path / "choices.json")
    monkeypatch.setattr(choices, "devices", lambda: [H200])
    monkeypatch.setattr(torch_graph, "use_one_stream", lambda: None)

    def prepare(setup: TorchSetup, *, amp: bool, variant: Variant) -> RunEpoch:
        variants.append(variant)
        return lambda due: None

    monkeypatch.setattr(torch_graph, "prepare", prepare)
    monkeypatch.setattr(choice, "_searches", searches)
    name = "unroll 2" if searches else "unroll 1"
    for stage in torch_graph.VARIANTS:
        choices.keep([Choice(stage, H200.name, H200.sm, 49, (33,), 10, 16, "unroll 2", 1.0, 2.0, "torch")])
    split = random_split(16, 49, 10)
    trainer = torch_graph.FLOAT32.build(problem, split)
    torch_graph.AMP.build(problem, split)
    variant = torch_graph.BOTH[name]
    assert variants == [variant if searches else replace(variant, compiler=torch_graph.UNPADDED)] * 2
    assert trainer.detail == name + ("" if searches else f"; {choices.MAY_GAIN}")
    assert Problem(784, 10, (300, 100)).multiplications < torch_graph.PADDED_FROM  # padding gains nothing there


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
@pytest.mark.parametrize("compiled", [False, True], ids=["as-written", "as-traced"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("hidden", [(33,)], ids=str)
def test_the_forward_pass_that_is_compiled(hidden: tuple[int, ...], precision: Precision, compiled: bool) -> None:
    amp = precision == "bfloat16"

    def evaluation(setup: TorchSetup, test: Split) -> Evaluate:
        import torch

        steps = evaluation_steps(setup)
        if compiled:
            steps = compile_steps(steps, {"backend": "aot_eager"})
        batches = setup.resident_batches(torch.bfloat16 if amp else torch.float32, test)

        def evaluate() -> None:
            with mixed(setup, amp=amp):
                for batch in batches:
                    steps([batch])

        return evaluate

    problem = problem_of(hidden, 16)
    prepare = partial(in_groups, amp=amp, compiled=False)
    trainer = TorchTrainer(problem, random_split(48, 49, 10), prepare, evaluation)
    test = random_split(37, 49, 10, seed=1)
    assert_validates(trainer, problem, test, *((1e-2, 0.06) if amp else ()))


@pytest.mark.torch
@pytest.mark.parametrize(("outputs", "products"), [(1, 0), (16, 0), (17, 1)])
def test_a_layer_with_few_outputs_is_a_sum_and_no_matrix_product(
    monkeypatch: pytest.MonkeyPatch, outputs: int, products: int
) -> None:
    import torch

    linear, called = torch.nn.functional.linear, []

    def counted(*given: Any) -> Any:
        called.append(given)
        return linear(*given)

    inputs, weight, bias = torch.rand(5, 7), torch.rand(outputs, 7), torch.rand(outputs)
    monkeypatch.setattr(torch.nn.functional, "linear", counted)
    torch.testing.assert_close(linear_or_sum(inputs, weight, bias), linear(inputs, weight, bias))
    assert len(called) == products


@pytest.mark.torch
def test_a_sum_of_products_of_bfloat16_rounds_the_weight_as_a_matrix_product_does() -> None:
    import torch

    inputs, weight, bias = torch.rand(5, 7).bfloat16(), torch.rand(10, 7), torch.rand(10)
    summed = linear_or_sum(inputs, weight, bias)
    assert summed.dtype == torch.float32
    assert torch.equal(summed, linear_or_sum(inputs, weight.bfloat16().float(), bias))


@pytest.mark.torch
def test_a_compiled_step_is_compiled_once_for_trainers_of_one_shape() -> None:
    import torch

    torch.compiler.reset()
    compilations = []

    def count(module, inputs):  # type: ignore[no-untyped-def]
        compilations.append(module)
        return module.forward

    for batches in (6, 1, 3):  # as in a worker: the whole split, then those of the first updates
        split = random_split(4 * batches, 49, 10)
        setup = TorchSetup(problem_of((5,), 4), split)
        steps = compile_steps(train_steps(setup), {"backend": count})
        for batch in setup.resident_batches():
            steps([batch], False)
            steps([batch], True)
    assert len(compilations) == 2  # without and with totals
    torch.compiler.reset()


@pytest.mark.torch
def test_metrics_are_added_up_only_when_due() -> None:
    problem = problem_of((), 4)
    split = random_split(8, 49, 10)
    sparse = torch_eager.STAGE.build(problem, split)
    each_epoch = torch_dataloader.STAGE.build(problem, split)
    for trainer in (sparse, each_epoch):
        trainer.load_params(initial_params(problem, 0))
    seen = []
    for epoch in range(4):
        for trainer in (sparse, each_epoch):
            trainer.run_epoch(epoch)
        seen.append((sparse.last_metrics() is not None, each_epoch.last_metrics() is not None))
    assert seen == [(False, True), (True, True), (False, True), (True, True)]
    assert sparse.last_metrics() == each_epoch.last_metrics()


@pytest.mark.torch
def test_graphs_of_one_process_are_captured_and_replayed_on_the_same_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels on a second one would make every node of theirs slower; built here as far as it goes without a GPU."""
    import torch

    used: list[object] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "Stream", object)
    monkeypatch.setattr(torch.cuda, "set_stream", used.append)

    def trainer(*_: object) -> SimpleNamespace:
        used.append("a trainer")
        return SimpleNamespace(detail="")

    monkeypatch.setattr(torch_graph, "TorchTrainer", trainer)
    torch_graph._only_stream.cache_clear()
    for amp in (False, True):
        torch_graph.build(Problem(5, 3), random_split(8, 5, 3), amp=amp)
    torch_graph._only_stream.cache_clear()
    first, built, second, _ = used
    assert first is second
    assert built == "a trainer"


FLEETS = [entry.stage for entry in load_all().values() if entry.stage.is_fleet]
PROBLEMS = [
    Problem(49, 10, networks=3, batch_size=16, metrics_every=1),
    Problem(49, 10, (7, 6), networks=5, batch_size=8, metrics_every=1),
    Problem(49, 10, (20,), networks=2, learning_rates=(0.02, 0.5), batch_size=16, metrics_every=1),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=["seeds", "layers", "rates"])
@pytest.mark.parametrize("stage", FLEETS, ids=lambda stage: stage.name)
def test_each_network_follows_its_oracle(stage, problem: Problem) -> None:  # type: ignore[no-untyped-def]
    from ladder.machine.environment import missing

    if reason := missing(stage.needs) or stage.misfit(problem, 5):
        pytest.skip(reason)
    split = random_split(5 * problem.batch_size + 3, 49, 10)
    trainer = stage.build(problem, split)
    assert_each_network_follows_its_oracle(trainer, problem, split, run=3)
    trainer.close()
