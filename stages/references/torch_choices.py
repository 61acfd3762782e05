"""Keeps PyTorch's compiler from choosing by timing on a busy GPU, and from caching such choices.

A process that prepares beside others times nothing before its turn: see `timed_in_turn`.

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

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, NoReturn

from common.choice import await_turn


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
