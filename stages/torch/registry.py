"""Every rung of the ladder over a user's model, in the order of its tables."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from common.errors import UsageError
from stages.torch import (
    r1_eager,
    r2_no_item,
    r3_accelerate,
    r3_lightning,
    r3_resident,
    r3_workers,
    r4_foreach_optimizer,
    r4_fused_optimizer,
    r5_amp_bf16,
    r5_compile,
    r5_graphed_callables,
    r5_one_thread,
    r5_step_graph,
    r5_tf32,
    r6_compiled_graph,
    r6_max_autotune_no_graphs,
    r6_reduce_overhead,
    r6_steps_graph,
    r7_channels_last,
    r7_compile_optimizer,
    r7_graph_bf16,
    r7_graph_tf32,
    r7_max_autotune,
)
from stages.torch.training_step import WITHOUT, Rung

MODULES = (
    r1_eager, r2_no_item, r3_workers, r3_resident, r4_foreach_optimizer, r4_fused_optimizer, r5_one_thread, r5_tf32,
    r5_amp_bf16, r5_compile, r6_reduce_overhead, r5_step_graph, r6_steps_graph, r6_compiled_graph, r7_channels_last,
    r7_graph_tf32, r7_graph_bf16, r5_graphed_callables, r7_compile_optimizer, r6_max_autotune_no_graphs,
    r7_max_autotune, r3_accelerate, r3_lightning,
)  # fmt: skip
RUNGS: dict[str, Rung] = {module.RUNG.name: module.RUNG for module in MODULES}
DOCS: dict[str, str] = {module.RUNG.name: module.__doc__ or "" for module in MODULES}


def chosen(names: Sequence[str], *, on_gpu: bool) -> list[Rung]:
    """The rungs of these names that this kind of device can climb. Raises UsageError where there is none."""
    here = [rung for rung in asked(names) if rung.place in ("anywhere", "gpu" if on_gpu else "cpu")]
    if not here:
        where = "on a GPU" if on_gpu else "without a GPU"
        raise UsageError(
            f"--stages {','.join(names)}: none of these rungs runs {where}; `--stages all` has those that do"
        )
    return here


def asked(names: Sequence[str]) -> list[Rung]:
    """The rungs of these names in their order; `all` are those climbed by default.

    A range, `resident..step-graph`, is the way from one rung to another. Raises UsageError for a name that is none, and
    for a rung whose package is not installed.
    """
    wanted: set[str] = set()
    for name in names:
        if name == "all":
            wanted |= {rung.name for rung in RUNGS.values() if rung.is_default and rung.is_installed}
        elif ".." in name:
            first, _, last = name.partition("..")
            way = [rung.name for rung in _known(last).way]
            if _known(first).name not in way:
                raise UsageError(f"--stages {name}: {last} does not climb from {first}; its way is {', '.join(way)}")
            wanted |= set(way[way.index(first) :])
        else:
            wanted.add(_known(name).name)
    return [rung for rung in RUNGS.values() if rung.name in wanted]


def with_base(rungs: Sequence[Rung]) -> list[Rung]:
    """These rungs and the first one of all ways, over which speedups are."""
    base = r1_eager.RUNG
    return [*rungs] if base in rungs else [base, *rungs]


def rung_named(name: str) -> Rung:
    """The rung of this name, or a rung with a change left out, as `left_out` names it."""
    if name in RUNGS:
        return RUNGS[name]
    whole, _, change = name.partition(WITHOUT)
    return left_out(RUNGS[whole], RUNGS[change])


def left_out(rung: Rung, change: Rung) -> Rung:
    """A rung with one change of its way taken back to the usual loop's choice."""
    return rung.without(change, RUNGS["eager"])


def left_outs(best: Rung) -> list[Rung]:
    """The best rung with each change of its way left out, without those that are rungs of the ladder themselves."""
    known = [rung.step for rung in RUNGS.values()]
    rungs = [left_out(best, RUNGS[name]) for name in best.changes[1:]]
    return [rung for rung in rungs if rung.step not in known]


def _known(name: str) -> Rung:
    if name not in RUNGS:
        near = difflib.get_close_matches(name, RUNGS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(RUNGS)}"
        raise UsageError(f"--stages {name}: there is no such rung for a model of your own; {hint}")
    if not RUNGS[name].is_installed:
        package = RUNGS[name].package
        raise UsageError(f"--stages {name}: needs {package}, which is not installed; `pip install {package}` adds it")
    return RUNGS[name]
