"""What PyTorch's compiler chooses by timing while others compile beside it: it stays in that process."""

from __future__ import annotations

import math
import os
import pickle
from types import SimpleNamespace

import pytest

from stages.references import torch_choices, torch_compile, torch_graph
from stages.references.torch_choices import ChoosesByTimeError, no_choice_kept

pytestmark = pytest.mark.torch


class TuningCache(dict[str, object]):
    put = dict.__setitem__


def test_no_block_size_is_kept_until_nothing_compiles_beside_it() -> None:
    from torch._inductor.runtime.autotune_cache import AutotuneCache

    cache = AutotuneCache("hash", local_cache=(TuningCache(), "kernel.best_config"))
    chosen = SimpleNamespace(kwargs={"XBLOCK": 1}, num_warps=4, num_stages=1)
    with no_choice_kept():
        cache.save(chosen, 1000, found_by_coordesc=False, triton_cache_hash="")
        hook = pickle.dumps(cache.save)  # as it lies on disk with a compiled kernel
    later = pickle.loads(hook)
    assert later.__self__.local_cache[0] == {}
    later(chosen, 1000, found_by_coordesc=False, triton_cache_hash="")
    assert list(later.__self__.local_cache[0]) == ["kernel.best_config"]


@pytest.mark.filterwarnings("ignore")
def test_what_is_compiled_does_not_depend_on_whether_padding_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch._inductor.fx_passes import pad_mm

    for allowed in ("can_pad", "is_mm_compute_bound"):  # as on a GPU
        monkeypatch.setattr(pad_mm, allowed, lambda *_: True)
    monkeypatch.setattr(pad_mm, "get_cached_should_pad", lambda _: None)
    odd = torch.ones(127, 127)
    with no_choice_kept(), pytest.raises(Exception, match=ChoosesByTimeError.__name__):
        torch.compile(lambda a, b: a @ b)(odd, odd)


def test_no_kernel_of_a_product_is_chosen_until_nothing_compiles_beside_it() -> None:
    from torch._inductor.codecache import PersistentCache
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    assert AlgorithmSelectorCache.lookup is PersistentCache.lookup
    before = PersistentCache.lookup
    with no_choice_kept(), pytest.raises(ChoosesByTimeError, match="a product's kernel"):
        AlgorithmSelectorCache().lookup([], "mm", "sizes", lambda choices: dict.fromkeys(choices, 1.0))
    assert PersistentCache.lookup is before


def test_a_compiler_waits_for_its_turn_only_to_time_something(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.codecache import PersistentCache
    from torch._inductor.fx_passes import pad_mm
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    said: list[str] = []
    for owner, name in ((CachingAutotuner, "bench"), (PersistentCache, "lookup")):
        monkeypatch.setattr(owner, name, lambda *_, name=name: said.append(name))
    monkeypatch.setattr(pad_mm, "get_do_bench", lambda: lambda what: said.append(what))
    monkeypatch.setattr(torch_choices, "await_turn", lambda: said.append("turn"))
    torch_choices.timed_in_turn.__wrapped__()
    timer = pad_mm.get_do_bench()
    assert said == []
    timer("pad")
    CachingAutotuner.bench(None)
    PersistentCache.lookup(None)
    assert said == ["turn", "pad", "turn", "bench", "turn", "lookup"]


class PretendedGraph:
    """A graph of `torch.cuda` and the events around its replays: a kernel takes 2 ms, and 3 in the first replay."""

    def __init__(self) -> None:
        self.captures, self.nodes, self.replays = False, list[object](), 0

    def capture_begin(self, **_: object) -> None:
        self.captures = True

    def capture_end(self) -> None:
        self.captures = False

    def replay(self) -> None:
        self.replays += 1

    def record(self) -> None: ...

    synchronize = record

    def elapsed_time(self, _: object) -> float:
        return len(self.nodes) * (3.0 if self.replays == 1 else 2.0)


def test_block_sizes_are_timed_on_copies_as_nodes_of_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    graph, alone = PretendedGraph(), list[object]()

    def launch(given: object, stream: int) -> None:
        (graph.nodes if graph.captures else alone).append((given, stream))

    launch.n_spills = 8  # type: ignore[attr-defined]
    for name in ("CUDAGraph", "Event"):
        monkeypatch.setattr(torch.cuda, name, lambda **_: graph)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7))
    kernel = SimpleNamespace(
        custom_kernel=False,
        inductor_meta={"spill_threshold": 8},
        clone_args=lambda given: ([f"copy of {given}"], {}),
    )
    assert torch_choices._timed_in_a_graph(kernel, launch, "weight") == 2.0
    assert set(graph.nodes) == set(alone) == {("copy of weight", 7)}
    assert len(graph.nodes) > len(alone) == 1
    launch.n_spills = 9  # type: ignore[attr-defined]
    assert torch_choices._timed_in_a_graph(kernel, launch, "weight") == math.inf


def test_choices_timed_in_graphs_have_a_name_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.compiler.config as compiler
    from torch._inductor.runtime.autotune_cache import AutotuneCache
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    monkeypatch.setattr(CachingAutotuner, "bench", CachingAutotuner.bench)
    monkeypatch.setattr(compiler, "cache_key_tag", "")
    monkeypatch.setenv("TORCH_COMPILE_CACHE_KEY_TAG", "")
    usual = AutotuneCache._prepare_key("kernel.py")
    torch_choices.timed_in_graphs.__wrapped__()
    assert CachingAutotuner.bench is torch_choices._timed_in_a_graph
    assert AutotuneCache._prepare_key("kernel.py") != usual
    assert os.environ["TORCH_COMPILE_CACHE_KEY_TAG"] == compiler.cache_key_tag


def test_what_is_compiled_ahead_of_its_turn_launches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch._inductor.virtualized import V

    launched: list[int] = []
    monkeypatch.setattr(CachingAutotuner, "run", lambda kernel, number, *, stream: launched.append(number))
    kernel = CachingAutotuner.__new__(CachingAutotuner)
    with torch_choices.launching_nothing():
        kernel.run(1, stream=0)
        with V.set_graph_handler(SimpleNamespace()):  # type: ignore[arg-type, unused-ignore]  # it compiles
            kernel.run(2, stream=0)
    kernel.run(3, stream=0)
    assert launched == [2, 3]


def test_those_that_compile_say_so() -> None:
    stages = (torch_compile.STAGE, torch_graph.FLOAT32, torch_graph.AMP)
    assert {stage.compiles_within for stage in stages} == {no_choice_kept}
