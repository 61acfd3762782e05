from __future__ import annotations

import pytest

from reports.terminal.print_doctor import print_doctor
from tests.reports.terminal.screens import screen, too_wide

FINDINGS = [
    ("Python", "3.12.3", "", False),
    ("NVIDIA driver", "none", "on a machine with a GPU: `make ladder`", True),
    ("data", "MNIST is not in the cache, /root/.cache/optimisation-ladder/mnist", "use --data-dir [FOLDER]", False),
    ("nsys", "not found", "it is at https://developer.nvidia.com/nsight-systems-and-more-of-this, or do without", True),
]


def text_of(findings: list[tuple[str, str, str, bool]], width: int = 80) -> str:
    return screen(lambda console: print_doctor(findings, console), width)


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_no_word_path_or_link_is_broken(width: int) -> None:
    text = text_of(FINDINGS, width)
    words = " ".join(cell for finding in FINDINGS for cell in finding[:3]).split()
    assert set(words) <= set(text.split())
    assert [line for line in too_wide(text, width) if "https" not in line] == []


def test_findings_with_advice_are_marked_and_summed_up() -> None:
    lines = text_of(FINDINGS).splitlines()
    assert lines[:3] == [
        "ok Python         3.12.3",
        "-  NVIDIA driver  none",
        "     on a machine with a GPU: `make ladder`",
    ]
    assert any(line.startswith("!  data") for line in lines)
    assert lines[-2:] == ["To look at: data.", "Optional: NVIDIA driver and nsys."]
    assert text_of(FINDINGS[:1]).splitlines()[-1] == "Everything is here."
