"""The table of languages is what records and sources give, and the page of twins has each line's instructions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ladder.records.run import load, save
from stages.registry import load_all
from tools.language_code import PAGE, RECORD, code_page, instructions
from tools.language_table import OPERATIONS, PYTHON, RECORDS, code_lines, compile_times, found_in, main, written


def test_the_page_has_today_s_table_and_figure() -> None:
    for path, text in written().items():
        assert path.read_text(encoding="utf-8") == text, "run python -m tools.language_table"


def test_twins_change_the_same_part_of_the_same_parent() -> None:
    stages = {name: entry.stage for name, entry in load_all().items()}
    for kernels in OPERATIONS.values():
        named = [stages[kernel.rung] for kernel in kernels if kernel.name]
        assert len({stage.below for stage in named}) <= 1
        assert len({(stage.changed or "").partition(":")[0] for stage in named}) <= 1


def test_a_missing_time_is_an_error_and_no_empty_cell(tmp_path: Path) -> None:
    save(load(RECORDS.parent / "reference" / "h200" / "logistic"), tmp_path / "results.json")
    with pytest.raises(ValueError, match="no run has times of fused-head, triton-head"):
        found_in(tmp_path)


def test_lines_are_code_alone() -> None:
    by_name = {kernel.name: code_lines(kernel) for kernels in OPERATIONS.values() for kernel in kernels if kernel.name}
    whole = len(PYTHON["Triton"].read_text(encoding="utf-8").splitlines())
    assert all(10 < count < whole for name, count in by_name.items() if name.startswith("triton"))
    assert 30 < by_name["softmax_xent"] < 70 < by_name["tile_product_f32"]


def test_compilation_is_measured_in_new_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(command: list[str], **how: object) -> bytes:
        asked.append(command[-1])
        return b"2.0" if asked.count(command[-1]) == 1 else b"0.5"

    monkeypatch.setattr("tools.language_table.subprocess.check_output", answer)
    assert main(["--compile", str(tmp_path / "compile.json")]) == 0
    told = json.loads((tmp_path / "compile.json").read_text())
    assert told == {name: {"cold_s": 2.0, "warm_s": 0.5} for name in dict.fromkeys(asked)}
    assert compile_times().keys() == told.keys()


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
    text = code_page(told)
    assert record.with_name(PAGE).read_text(encoding="utf-8") == text, "run python -m tools.language_code"
    for name, files in told.items():
        assert f"<code>{name}</code>" in text
        assert sum(len(code) for file in files for code in file["code"].values()) > 100
        for file in files:
            assert all(file["text"][int(line) - file["first"]].strip() for line in file["code"])
