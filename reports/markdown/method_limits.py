"""A table for docs/method.md: the H200's limits in each recorded run, beside an earlier measurement.

The earlier times come from separate programs with raw driver calls, on another H200. They are typed here once; the
times beside them come from recorded runs.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from ladder.records.limits_record import LimitsRecord
from reports.facts import numbers
from reports.markdown.readme import Runs
from reports.writers.markdown import cell, table

GPU = "h200"  # folder of its recorded runs
EARLIER_US = {
    "launch": 3.6,
    "launch_and_wait": 7.4,
    "launch_and_read": 14.1,
    "graph_node": 0.86,
    "graph_node_full": 1.41,
    "graph_node_dependent": 0.51,
    "block_barrier": 29 / 1980,  # cycles at 1980 MHz
    "grid_barrier": 0.92,
    "cluster_barrier_2": 0.19,
    "cluster_barrier_16": 0.19,
    "cluster_hop_2": 0.25,
    "cluster_hop_16": 0.25,
}
NEAR_EARLIER = 0.15
NEAR_EACH_OTHER = 0.05


def limits_table(runs: list[tuple[str, LimitsRecord]]) -> str:
    """The table and its verdict, from at least one (run, record)."""
    rows, far, apart = [], [], []
    for name, earlier in EARLIER_US.items():
        limits = [limit.median if (limit := record.get(name)) else None for _, record in runs]
        known = [us for us in limits if us is not None]
        if not known:
            continue
        title = next(limit.title for _, record in runs if (limit := record.get(name)))
        furthest = max((us / earlier - 1 for us in known), key=abs)
        spread = max(known) / min(known) - 1
        if abs(furthest) > NEAR_EARLIER:
            far.append(f"{title} ({_signed(furthest)})")
        if spread > NEAR_EACH_OTHER:
            apart.append(f"{title} ({numbers.share(spread)})")
        differ = numbers.share(spread) if len(known) > 1 else numbers.MISSING
        rows.append(
            (cell(title), numbers.microseconds(earlier), *map(numbers.microseconds, limits), _signed(furthest), differ)
        )
    names = [cell(name) for name, _ in runs]
    shown = table(
        ("Primitive, us", "Earlier", *names, "Furthest from earlier", "Runs differ by"),
        rows,
        right=[False] + [True] * (len(runs) + 3),
    )
    sentences = [
        _sentence(f"More than {numbers.share(NEAR_EARLIER)} from the earlier value in at least one run", far),
        _sentence(f"More than {numbers.share(NEAR_EACH_OTHER)} apart between runs", apart),
    ]
    return f"{shown}\n\n{' '.join(sentences)}"


def limits_block(runs: Runs) -> str:
    """The table of the H200's runs that measured its limits."""
    records = [(PurePosixPath(folder), run.limits) for folder, run in runs]
    known = [(folder.name, limits) for folder, limits in records if folder.parent.name == GPU and limits is not None]
    return limits_table(known) if known else "No run is recorded."


def _sentence(text: str, primitives: list[str]) -> str:
    return f"{text}: {numbers.listing(primitives)}." if primitives else f"{text}: none."


def _signed(share: float) -> str:
    return f"{'+' if share > 0 else ''}{numbers.share(share)}"
