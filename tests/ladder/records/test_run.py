"""Numbers in a results file that no measurement has."""

from __future__ import annotations

import pytest

from ladder.records.run import _impossible_number


@pytest.mark.parametrize("text", ["1e300", "1E300", "-2.5e-308", "1e+200", "1" * 101])
@pytest.mark.parametrize("around", ['{"a":[%s]}', '{"a": %s}', "[0.5, %s]"])
def test_a_number_whose_square_no_float_holds_is_found_however_it_is_written(text: str, around: str) -> None:
    assert "is no measurement" in _impossible_number((around % text).encode())


@pytest.mark.parametrize("text", ['"604e834ba891046e6505"', "1.5e-99", "0", '"a:1e300"', '"1e300"'])
def test_hashes_and_other_texts_are_no_numbers(text: str) -> None:
    assert not _impossible_number(f'{{"a":[{text}]}}'.encode())
