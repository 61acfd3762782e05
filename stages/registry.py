"""All stages, in ladder order: the list that the harness, the tests and the documents use."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from common.errors import UsageError
from common.vocabulary import GROUPS
from stages.engine.stage import Doc, Stage
from stages.engine.user_stage import load_file

SOURCES = (
    "stages.references.numpy_cpu:STAGE",
    "stages.references.torch_dataloader:STAGE",
    "stages.references.torch_eager:STAGE",
    "stages.references.torch_compile:STAGE",
    "stages.references.torch_compile_cpu:STAGE",
    "stages.references.torch_graph:FLOAT32",
    "stages.references.torch_graph:AMP",
    "stages.references.jax_scan:STAGE",
    "stages.references.jax_scan_bf16:STAGE",
    "stages.references.numpy_stacked:STAGE",
    "stages.references.torch_stacked:STAGE",
    "stages.references.jax_vmap:STAGE",
    "stages.cpu.loops:STAGE",
    "stages.cpu.blas:STAGE",
    "stages.cpu.sparse_metrics:STAGE",
    "stages.cpu.fused_head:STAGE",
    "stages.cpu.fused_update:STAGE",
    "stages.cpu.one_call:STAGE",
    "stages.cpu.tiles:STAGE",
    "stages.cpu.bytes:STAGE",
    "stages.cpu.fleet:STAGE",
    "stages.cpu.cores:STAGE",
    "stages.cpu.resident:STAGE",
    "stages.cpu.wide_tiles:STAGE",
    "stages.classic.naive:STAGE",
    "stages.classic.async_metrics:STAGE",
    "stages.classic.cublas:STAGE",
    "stages.classic.sparse_metrics:STAGE",
    "stages.classic.cudnn_softmax:STAGE",
    "stages.classic.cuda_graph:STAGE",
    "stages.fusion.fleet_graph:STAGE",
    "stages.fusion.fused_head:STAGE",
    "stages.fusion.fused_update:STAGE",
    "stages.fusion.fused_epilogue:STAGE",
    "stages.fusion.parallel_branches:STAGE",
    "stages.tiles.skinny_gemm:STAGE",
    "stages.tiles.fused_bias:STAGE",
    "stages.tiles.dependent_launch:STAGE",
    "stages.tiles.tf32:STAGE",
    "stages.tiles.bf16:STAGE",
    "stages.tiles.fp16:STAGE",
    "stages.tiles.exact_u8:STAGE",
    "stages.streamed.streamed:STAGE",
    "stages.streamed.last_layer:STAGE",
    "stages.streamed.streamed_ring:STAGE",
    "stages.streamed.streamed_bf16:STAGE",
    "stages.streamed.last_layer_bf16:STAGE",
    "stages.streamed.ring_bf16:STAGE",
    "stages.streamed.ring_planes:STAGE",
    "stages.streamed.planes_dependent:STAGE",
    "stages.streamed.streaming_epoch:STAGE",
    "stages.streamed.deferred_epoch:STAGE",
    "stages.large_batch.large_batch:STAGE",
    "stages.large_batch.large_batch_fp16:STAGE",
    "stages.large_batch.large_batch_wide:STAGE",
    "stages.large_batch.large_batch_plain:STAGE",
    "stages.large_batch.large_batch_dependent:STAGE",
    "stages.large_batch.large_batch_early:STAGE",
    "stages.large_batch.large_batch_early_fp16:STAGE",
    "stages.persistent.persistent_grid:STAGE",
    "stages.persistent.grid_bf16:STAGE",
    "stages.persistent.grid_pairs_bf16:STAGE",
    "stages.persistent.grid_messages:STAGE",
    "stages.persistent.grid_messages_fp16:STAGE",
    "stages.persistent.stationary_epoch:STAGE",
    "stages.persistent.fleet_grid:STAGE",
    "stages.persistent.persistent_cluster:STAGE",
    "stages.persistent.cluster_fp16:STAGE",
    "stages.persistent.fleet_cluster:STAGE",
    "stages.persistent.fleet_columns:STAGE",
    "stages.persistent.fleet_columns_fp16:STAGE",
    "stages.persistent.cluster_ahead:STAGE",
    "stages.persistent.cluster_ahead_fp16:STAGE",
    "stages.persistent.divided_batch:STAGE",
    "stages.persistent.divided_batch_fp16:STAGE",
    "stages.persistent.divided_hidden_fp16:STAGE",
    "stages.memory.alloc_cudamalloc:STAGE",
    "stages.memory.alloc_async:STAGE",
    "stages.memory.alloc_pool:STAGE",
    "stages.memory.alloc_arena:STAGE",
    "stages.data.pageable:STAGE",
    "stages.data.pinned:STAGE",
    "stages.data.pinned_overlap:STAGE",
    "stages.data.resident_f32:STAGE",
    "stages.data.resident_u8:STAGE",
    "stages.languages.triton_head:STAGE",
    "stages.languages.cute_head:STAGE",
    "stages.languages.triton_update:STAGE",
    "stages.languages.triton_skinny:STAGE",
    "stages.references.tinygrad_jit:STAGE",
    "stages.devices.ddp_step:STAGE",
    "stages.devices.ddp_peer:STAGE",
    "stages.devices.ddp_overlap:STAGE",
    "stages.devices.ddp_halves:STAGE",
    "stages.devices.torch_ddp:FLOAT32",
    "stages.devices.torch_ddp:AMP",
    "stages.devices.torch_symmetric:STAGE",
    "stages.devices.jax_shard:STAGE",
)

TIE = 0.1  # of likeness, from 0 to 1


@dataclass(frozen=True)
class Entry:
    """A stage, its documentation, and the source from which any process loads it.

    The source is `module:attribute` or `/file.py:STAGE`.
    """

    source: str
    stage: Stage
    doc: Doc

    @property
    def is_ours(self) -> bool:
        """Whether it is a stage of this project, not a file of the user's."""
        return own_file(self.source) is None


def own_file(source: str) -> Path | None:
    """The user's file of a source; None for a stage of this project."""
    return Path(source.rpartition(":")[0]) if "/" in source else None


def load_entry(source: str) -> Entry:
    """Import one stage, ours by its module or a user's by its file; raises UsageError for a file without a stage."""
    if path := own_file(source):
        return Entry(source, *load_file(path))
    module_name, _, attribute = source.rpartition(":")
    module = importlib.import_module(module_name)
    return Entry(source, getattr(module, attribute), Doc.parse(module.__doc__ or ""))


def load_all(sources: Iterable[str] = SOURCES) -> dict[str, Entry]:
    """All stages by their ids, in ladder order; raises ValueError if two have the same id."""
    entries: dict[str, Entry] = {}
    for entry in map(load_entry, sources):
        if entry.stage.name in entries:
            raise ValueError(f"two stages are called {entry.stage.name}")
        entries[entry.stage.name] = entry
    return entries


def find(name: str) -> Entry:
    """Our stage of this id; raises UsageError with the nearest ids."""
    entries = load_all()
    return entries[_known(name, entries)]


def rung(name: str) -> Stage:
    """Our rung of this id, such as `cublas`, to climb from; raises UsageError with the nearest ids."""
    return find(name).stage


def select(
    words: Iterable[str], entries: Mapping[str, Entry], *, has_gpu: bool = False, networks: int = 1, gpus: int = 1
) -> list[Entry]:
    """The stages that the words of `--stages` select, in ladder order.

    A word is an id, a range `FROM..TO` or one of `GROUPS`. On a machine that has a GPU, `all` omits `cpu`, too.
    For one network, groups and ranges omit the stages that train several; on one GPU, those that take several,
    which `devices` always names, references included. Raises UsageError for an unknown id, with the nearest.
    """
    several = {name for name, entry in entries.items() if entry.stage.takes_gpus}
    omitted = {name for name, entry in entries.items() if entry.stage.is_fleet and networks == 1}
    omitted |= several if gpus == 1 else set()
    order = list(entries)
    chosen: set[str] = set()
    for word in words:
        if word in GROUPS:
            left_out = GROUPS["cpu"] if word == "all" and has_gpu else ()
            named = {name for name, e in entries.items() if e.stage.group in {*GROUPS[word]} - {*left_out}}
            chosen |= several if word == "devices" else named - omitted
        elif ".." in word:
            first, _, last = word.partition("..")
            begin, end = (order.index(_known(name, entries)) for name in (first, last))
            if begin > end:
                raise UsageError(f"stages {word}: {first} comes after {last}; write {last}..{first}")
            chosen |= {*order[begin : end + 1]} - omitted
        else:
            chosen.add(_known(word, entries))
    return [entry for name, entry in entries.items() if name in chosen]


def _known(name: str, entries: Mapping[str, Entry]) -> str:
    if name in entries:
        return name
    near = _nearest(name, [*entries, *GROUPS])
    hint = f"did you mean {' or '.join(near)}?" if near else "see `run_ladder.py list`"
    raise UsageError(f"stage {name!r}: unknown; {hint}")


def _nearest(name: str, known: list[str]) -> list[str]:
    """The known words most like this one: the nearest, and up to two that are nearly as near."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    likeness = [difflib.SequenceMatcher(None, word, name).ratio() for word in near]
    return [word for word, ratio in zip(near, likeness, strict=True) if ratio > likeness[0] - TIE]
