"""Keeps PyTorch's compiler from choosing by timing on a busy GPU, by a poor timer, and from caching such choices.

A process that prepares beside others times nothing before its turn: see `timed_in_turn`. What will run in a CUDA graph
is timed in one: see `timed_in_graphs`.

Before measurements, stages compile side by side. Timings taken then say little, and a reference must not lose because
of them. The modes used here make two timed choices. First, a fused kernel's block size: measured on its first run and
cached in a file of its own (`.best_config`). Without that file, the first process that runs alone measures again,
with all variants already compiled. Second, whether to pad a matrix product: measured while compiling and part of the
cached code. It cannot be left out, so compilation is abandoned here and happens when the stage is measured. Variants
with autotuned products make a third, the product's kernel, with which it is the same.

PyTorch's own switch for the first choice, `torch._inductor.config.autotune_local_cache`, is written into the cached
kernels' source; no later process would then cache its choice.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import Any, NoReturn

from common.choice import await_turn

TIMED_IN_GRAPHS = "timed-in-graphs"  # names such choices in the compiler's cache
LAUNCHES, REPLAYS = 20, 5  # in a graph, and of it


@cache
def timed_in_turn() -> None:
    """Have PyTorch's compiler wait for this process's turn before it times variants, in this process from now on.

    With a PyTorch version of other internals, the process waits here, before it compiles.
    """
    try:
        import torch._inductor.fx_passes.pad_mm as padding
        from torch._inductor.codecache import PersistentCache
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        for owner, name in ((CachingAutotuner, "bench"), (PersistentCache, "lookup")):
            setattr(owner, name, _after_turn(getattr(owner, name)))
        timer_of = padding.get_do_bench  # asked for before each product, and used for few
        padding.get_do_bench = lambda: _after_turn(timer_of())
    except (ImportError, AttributeError):
        await_turn()


def _after_turn(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def waiting(*arguments: Any, **named: Any) -> Any:
        await_turn()
        return call(*arguments, **named)

    return waiting


@cache
def timed_in_graphs() -> None:
    """Have PyTorch's compiler time block sizes in CUDA graphs, in this process from now on.

    Its own timer empties the L2 cache before each launch. Sizes that then seem equal differ in a graph, and chance
    decides: in 784-10 a kernel took 2.44, 2.7 or 3.27 us. Choices get a name of their own in the cache, since another
    stage may have timed the same kernel by the compiler's timer. With a PyTorch version of other internals, that timer
    stays.
    """
    try:
        import torch.compiler.config as compiler
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        CachingAutotuner.bench = _timed_in_a_graph  # type: ignore[method-assign, unused-ignore]
        os.environ["TORCH_COMPILE_CACHE_KEY_TAG"] = TIMED_IN_GRAPHS  # for processes that compile for this one
        compiler.cache_key_tag = TIMED_IN_GRAPHS
    except (ImportError, AttributeError):
        return


def _timed_in_a_graph(kernel: Any, launcher: Any, *given: Any, with_profiler: bool = False, **named: Any) -> float:  # noqa: ARG001
    """Milliseconds of one launch, on copies of what the kernel overwrites; infinite if it spills registers.

    The compiler's own timer leaves out the same kernels.
    """
    import torch

    if not kernel.custom_kernel and (launcher.n_spills or 0) > kernel.inductor_meta.get("spill_threshold", 16):
        return math.inf
    copies, named_copies = kernel.clone_args(*given, **named)
    launch = partial(launcher, *copies, **named_copies, stream=torch.cuda.current_stream().cuda_stream)
    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(capture_error_mode="thread_local")
    for _ in range(LAUNCHES):
        launch()
    graph.capture_end()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: list[float] = []
    for _ in range(REPLAYS):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return min(times) / LAUNCHES


@contextmanager
def launching_nothing() -> Iterator[None]:
    """Inside, compiled functions are traced and compiled when called, and launch no Triton kernel: none is timed.

    Their results are of no use. The compiler launches what it times itself. Where this PyTorch has no such function,
    kernels are launched, and timed in turn.
    """
    try:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
        from torch._inductor.virtualized import NullHandler, V
    except ImportError:
        yield
        return
    launch = CachingAutotuner.run
    CachingAutotuner.run = lambda *given, **named: (  # type: ignore[method-assign, unused-ignore]
        None if isinstance(V.graph, NullHandler) else launch(*given, **named)
    )
    try:
        yield
    finally:
        CachingAutotuner.run = launch  # type: ignore[method-assign, unused-ignore]


class ChoosesByTimeError(Exception):
    """The compiled code would depend on an unreliable timing."""


@contextmanager
def no_choice_kept() -> Iterator[None]:
    """Inside, PyTorch's compiler stores no timed choice on disk.

    Compiling raises ChoosesByTimeError if it depends on one. AttributeError means a PyTorch version with other
    internals.
    """
    import torch._inductor.fx_passes.pad_mm as padding
    from torch._inductor.codecache import PersistentCache
    from torch._inductor.runtime.autotune_cache import AutotuneCache

    def save(*_: object, **__: object) -> None:
        """Store nothing. Cached kernels refer to this method by name, hence `save`."""

    timed = AutotuneCache.save, padding.get_do_bench, PersistentCache.lookup
    AutotuneCache.save, padding.get_do_bench = save, lambda: _refuse_padding
    PersistentCache.lookup = _refuse_product  # type: ignore[method-assign, unused-ignore]
    try:
        yield
    finally:
        AutotuneCache.save, padding.get_do_bench, PersistentCache.lookup = timed  # type: ignore[method-assign, unused-ignore]


def _refuse_padding(*_: object, **__: object) -> float:
    raise ChoosesByTimeError("whether to pad a product is chosen by timing both")


def _refuse_product(*_: object, **__: object) -> NoReturn:
    raise ChoosesByTimeError("a product's kernel is chosen by timing several")
