"""The screen of `limits`: what the primitives of the GPU or the CPU cost."""

from __future__ import annotations

from ladder.records.limits_record import CpuLimits, LimitsRecord
from reports.facts import numbers
from reports.screens.blocks import Column, Group, Screen, Sentences, Table
from reports.screens.details import CAPTION, CAPTION_ON_CPU, limits_grid, not_measured


def limits_screen(record: LimitsRecord | CpuLimits) -> Screen:
    """Every primitive with its spread, then the primitives that were not measured, with the reason."""
    grid = limits_grid(record)
    ranks = {"Spread": 1, "Min": 2, "Max": 2}
    columns = [
        Column("" if header == "Unit" else header.lower(), [cells[place] for cells in grid.lines],
               ranks.get(header, 0), grid.right[place])
        for place, header in enumerate(grid.header)
    ]  # fmt: skip
    caption = CAPTION if isinstance(record, LimitsRecord) else CAPTION_ON_CPU
    how = Sentences([caption, f"Measured in {numbers.seconds(record.seconds)}."], "quiet")
    told = Group([Table(columns), how, Sentences(list(not_measured(record)), is_list=True)])
    return Screen("", "", [told], record, "limits")
