"""The stages of a run: the ladder's, and those in the user's files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from common.errors import UsageError
from ladder.machine.environment import missing
from stages.registry import Entry, load_all, load_own, select


def all_entries(stage_files: Sequence[Path] = ()) -> tuple[dict[str, Entry], tuple[str, ...]]:
    """Every stage by its name, the user's last, and the names of the user's.

    Raises UsageError for a file without a stage, and for a stage with an unknown need.
    """
    entries = load_all()
    own = load_own(stage_files, entries)
    for entry in own.values():
        try:
            missing(entry.stage.needs)
        except ValueError as error:
            raise UsageError(f"--stage-file {entry.source.rpartition(':')[0]}: {error}") from error
    return entries | own, tuple(own)


def check_name(name: str, stage_files: Sequence[Path]) -> None:
    """Raise UsageError for an unknown name, with the nearest ones."""
    select([name], all_entries(stage_files)[0])


def listed(stage_files: Sequence[Path]) -> list[tuple[str, str, str, str]]:
    """Each stage as (name, its change, its needs, whether it runs here), in words."""
    rows = []
    for stage in (entry.stage for entry in all_entries(stage_files)[0].values()):
        reason = missing(stage.needs)
        runs_here = "yes" if reason is None else f"no: {reason}"
        rows.append((stage.name, stage.changed or stage.title, ", ".join(stage.needs) or "nothing", runs_here))
    return rows
