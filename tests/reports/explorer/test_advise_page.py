"""The calculator in a browser says what `advise` says: the same stages, numbers and sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.errors import UsageError
from ladder.options.commands import Advise
from ladder.options.run_options import RunOptions
from ladder.run.outlook import model_facts, outlooks
from reports.explorer.advise_page import SCRIPTS, render_calculator
from reports.explorer.html import asset
from reports.facts.advice import deciding, notes, verdict
from reports.figures.canvas import page_rules
from tests.browser import Open, Opened, violations

ASK = """([hidden, batch, gpu, epochs]) => {
  const {model, networkOf, outlook, deciding, verdict, notes, guess} = advice;
  const network = networkOf(hidden, batch), chip = model.chips.find((one) => one.name === gpu);
  const found = outlook(network, chip);
  if (!found) return null;
  const chosen = deciding(found);
  return {stages: found, deciding: chosen.map((one) => one.name), verdict: verdict(chosen, epochs, network),
          notes: notes(chosen, chip), guess: guess(chip, network)};
}"""
READY = ".calculator .verdict"


@pytest.fixture
def calculator(tmp_path: Path, open_page: Open) -> Opened:
    return open_page(page_of(tmp_path), ready=READY)


def page_of(tmp_path: Path) -> Path:
    """A file with the calculator alone, whose scripts and styles stand in it."""
    text = render_calculator(model_facts())
    for name in SCRIPTS:
        text = text.replace(f'<script src="{name}"></script>', f"<script>{asset(name)}</script>")
    styles = "\n".join((page_rules(), asset("explorer.css"), asset("regimes.css")))
    page = tmp_path / "calculator.html"
    head = f"<!DOCTYPE html><html lang=en><title>Calculator</title><style>{styles}</style>"
    page.write_text(f"{head}<main><h1>Calculator</h1>{text}</main>", encoding="utf-8")
    return page


def networks() -> list[tuple[list[int], int, str, int]]:
    """Recorded networks, corners of what rungs take, and random ones, each with a GPU and epochs."""
    random, found = np.random.default_rng(42), []
    for hidden, batch in [
        ([], 128), ([256], 128), ([1024], 128), ([128, 128, 128], 32), ([784] * 4, 64), ([4096] * 3, 32), ([1], 1),
        ([300, 100], 100), ([64] * 4, 16), ([64] * 5, 16), ([255], 128), ([257], 128), ([], 100), ([], 144), ([16], 1),
        ([256], 129), ([4096], 8192), ([8192] * 3, 32), ([512, 512], 256), ([100_000], 1),
    ]:  # fmt: skip
        found += [(hidden, batch, gpu, 20) for gpu in ("H200", "H100")]
    gpus = ("H200", "RTX 4090", "A100", "T4", "H100", "B200")
    for gpu in (*gpus, *gpus):
        for batch in 2 ** random.integers(0, 11, 3) + random.integers(0, 3, 3):
            widths = np.round(2 ** random.uniform(4, 11, random.integers(0, 5))).astype(int)
            found.append((widths.tolist(), int(batch), gpu, int(random.integers(1, 2000))))
    return found


def test_the_page_says_what_the_command_says(calculator: Opened) -> None:
    named: set[str] = set()
    for hidden, batch, gpu, epochs in networks():
        page: Any = calculator.page.evaluate(ASK, [hidden, batch, gpu, epochs])
        asked = Advise(options=RunOptions(hidden=tuple(hidden), batch_size=batch, epochs=epochs), gpu=gpu)
        try:
            told = outlooks(asked)
        except UsageError:
            assert page is None, (hidden, batch, gpu)
            continue
        where = (hidden, batch, gpu)
        assert [one["name"] for one in page["stages"]] == [one.name for one in told.stages], where
        for one, other in zip(page["stages"], told.stages, strict=True):
            ours = [other.us, other.low_us, other.high_us]
            assert [one["us"], one["low"], one["high"]] == pytest.approx(ours, rel=1e-9), (*where, other.name)
            assert one["isRecorded"] == other.is_recorded
        assert page["deciding"] == [one.name for one in deciding(told)], where
        assert page["verdict"] == verdict(told), where
        assert page["notes"] == " ".join(notes(told)), where
        assert page["guess"] == told.guess, where
        named |= {one.name for one in told.stages}
    assert named == model_facts()["stages"].keys()  # every stage was asked about


def put(opened: Opened, name: str, value: str) -> None:
    opened.page.fill(f"#{name}", value)


def test_the_fields_change_the_answer_and_say_what_is_wrong(calculator: Opened) -> None:
    first = calculator.text(".advice")
    assert "Once an epoch is captured in a graph" in first
    put(calculator, "hidden", "4096, 4096")
    assert calculator.text(".advice") != first
    assert "--hidden 4096,4096 --batch-size 100" in calculator.text(".sure")
    assert "by a model without cluster-ahead, " in calculator.text(".sure")  # as code, not in backticks
    put(calculator, "hidden", "256")
    put(calculator, "of-batch", "128")
    assert "by a model" not in calculator.text(".sure")
    calculator.page.select_option("#chip", "RTX 4090")
    assert "A guess: times are carried over from the " in calculator.text(".sure")
    put(calculator, "hidden", "256,x")
    assert calculator.text(".advice") == "Hidden layers: write their widths, such as 300,100; leave it empty for none."
    assert calculator.page.get_attribute("#hidden", "aria-invalid") == "true"
    put(calculator, "hidden", "99999")
    put(calculator, "of-batch", "60000")
    assert "larger than every recorded one" in calculator.text(".advice")
    put(calculator, "hidden", "")
    put(calculator, "of-batch", "")
    assert "Batch: a whole number" in calculator.text(".advice")


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_it_breaks_no_rule_of_accessibility_and_fits(tmp_path: Path, open_page: Open, width: int, theme: Any) -> None:
    opened = open_page(page_of(tmp_path), width=width, theme=theme, ready=READY)
    assert violations(opened) == []
    assert opened.ask("document.documentElement.scrollWidth") <= width
    assert opened.page.locator(".ranges circle").count() == opened.page.locator(".ranges tbody tr").count()
