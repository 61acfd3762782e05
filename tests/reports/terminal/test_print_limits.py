from __future__ import annotations

import io

import pytest
from rich.console import Console

from ladder.records.limits import Chip, Limit, LimitsRecord
from reports.terminal.print_limits import print_limits

RECORD = LimitsRecord(
    chip=Chip(132, 60 << 20, 64 << 20),
    limits=[
        Limit("graph_node", "graph node, 1 block", "us", 0.86, 0.85, 0.89),
        Limit("graph_node_dependent", "graph node, programmatic dependent launch", "us", 0.51, 0.5, 0.53),
        Limit("memory_copy", "memory copy, read and written", "GB/s", 4312.0, 4290.0, 4330.5),
        Limit("gemm_float16", "matrix product, fp16", "TFLOP/s", 788.4, 780.0, 790.0),
    ],
    skipped={"cluster barrier, 8 blocks": "needs sm_90 or newer, this GPU is sm_86"},
    seconds=6.2,
)


def printed(width: int) -> str:
    file = io.StringIO()
    print_limits(RECORD, Console(file=file, width=width))
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_each_primitive_is_a_row_with_its_spread_and_nothing_is_cut_off(width: int) -> None:
    text = printed(width)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "graph node, 1 block 0.860 0.850 0.890 us 4.65%" in lines
    assert "memory copy, read and written 4,312 4,290 4,330 GB/s 0.94%" in lines
    assert "matrix product, fp16 788 780 790 TFLOP/s 1.27%" in lines
    assert "* not measured: cluster barrier, 8 blocks: needs sm_90 or newer, this GPU is sm_86" in " ".join(lines)
    assert "Measured in 6.2 s." in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
