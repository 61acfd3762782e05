"""The screen of `limits`: what the primitives of the GPU or the CPU cost."""

from __future__ import annotations

from ladder.records.limits_record import CpuLimits, LimitsRecord
from reports.facts import numbers
from reports.screens.blocks import Group, Screen, Sentences
from reports.screens.details import limits_caption, limits_table, not_measured


def limits_screen(record: LimitsRecord | CpuLimits) -> Screen:
    """Every primitive with its spread, then the primitives that were not measured, with the reason."""
    how = Sentences([limits_caption(record), f"Measured in {numbers.seconds(record.seconds)}."], "quiet")
    told = Group([limits_table(record), how, Sentences(list(not_measured(record)), is_list=True)])
    return Screen("", "", [told], record, "limits")
