"""The page of twins: each line of ours with the instructions that it became."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.language_code import PAGE, RECORD, instructions, page
from tools.language_table import RECORDS

TEXT = """\
.text.other:
\t//## File "/a/own.cu", line 1
        /*0000*/                   EXIT ;
.text.mine:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "/a/own.cu", line 3
        /*0010*/              @P0  FADD  R1, R2, R3 ;
\t//## File "/usr/include/library.h", line 4
        /*0020*/                   MUFU.EX2 R5, R10 ;
.L_x_1:
\t//## File "/a/own.cu", line 4
        /*0030*/                   EXIT ;
        /*0040*/                   NOP;
$__internal_0_$__division:
        /*0050*/                   RET.REL.NODEC R10 ;
.text.further:
        /*0000*/                   EXIT ;
"""


def test_an_instruction_stands_with_its_line_and_a_library_s_with_the_one_before() -> None:
    own = {("own.cu", line) for line in (3, 4)}
    assert instructions(TEXT, "mine", own) == {
        ("own.cu", 3): ["@P0 FADD R1, R2, R3", "MUFU.EX2 R5, R10"],
        ("own.cu", 4): ["EXIT"],
    }
    assert instructions(TEXT, "absent", own) == {}


@pytest.mark.parametrize("record", sorted(RECORDS.glob(f"*/{RECORD}")), ids=lambda path: path.parent.name)
def test_a_recorded_page_is_the_one_of_its_record(record: Path) -> None:
    told = json.loads(record.read_text(encoding="utf-8"))
    text = page(told)
    assert record.with_name(PAGE).read_text(encoding="utf-8") == text, "run python -m tools.language_code"
    for name, files in told.items():
        assert f"<code>{name}</code>" in text
        assert sum(len(code) for file in files for code in file["code"].values()) > 100
        for file in files:
            assert all(file["text"][int(line) - file["first"]].strip() for line in file["code"])
