"""What PyTorch's compiler chooses by timing it on the GPU, kept from being kept.

Where several compile side by side, as they do before anything is measured, a time says little, and a reference must not
lose because it was compiled beside others. There are two such choices in the modes that are used here. Which of a few
block sizes a fused kernel has is measured when it first runs, and the fastest is kept in a file of its own
(`.best_config`): without that file, the first process that runs alone measures anew, with all of them compiled already.
Whether a matrix product is padded is measured while compiling, and becomes part of what is kept: there is no leaving
out, so compiling is given up, and the stage compiles when it is measured.

`torch._inductor.config.autotune_local_cache`, PyTorch's own switch for the first of them, will not do: it is written
into the kernels' source, which is kept, so that no process after that would keep what it chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ChoosesByTimeError(Exception):
    """What is compiled would depend on a time that is worth nothing."""


@contextmanager
def no_choice_kept() -> Iterator[None]:
    """Within, PyTorch's compiler keeps nothing on disk that it chose by timing.

    Compiling raises ChoosesByTimeError where it cannot do without. AttributeError means a PyTorch that has these parts
    elsewhere.
    """
    import torch._inductor.fx_passes.pad_mm as padding
    from torch._inductor.runtime.autotune_cache import AutotuneCache

    def save(*_: object, **__: object) -> None:
        """Keep nothing. Kernels are kept with a reference to that method by its name, which is why it is called so."""

    timed = AutotuneCache.save, padding.get_do_bench
    AutotuneCache.save, padding.get_do_bench = save, lambda: _refuse
    try:
        yield
    finally:
        AutotuneCache.save, padding.get_do_bench = timed


def _refuse(*_: object, **__: object) -> float:
    raise ChoosesByTimeError("whether to pad a product is chosen by timing both")
