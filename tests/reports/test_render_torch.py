from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import run_ladder
from ladder.records.torch_run import TorchResults, save
from reports.render import FAST, PLAIN, programs, render_torch
from reports.report_error import ReportError
from tests.reports.torch_sample import a_process, a_torch_run, with_rung

RUN = a_torch_run()


def saved(folder: Path, run: TorchResults = RUN) -> str:
    folder.mkdir(exist_ok=True)
    save(run, folder)
    return str(folder)


def test_report_writes_document_page_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_ladder.main(["report", saved(tmp_path)]) == 0
    assert "18.6x" in capsys.readouterr().out
    for name in ("report.md", "report.html", "figures/ladder.svg"):
        assert "compiled-graph" in (tmp_path / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("form", ["--json", "--csv"])
def test_report_prints_for_other_programs(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_ladder.main(["report", saved(tmp_path), form]) == 0
    assert capsys.readouterr().out.startswith(("{", "name,"))


def test_a_run_without_times_has_no_picture(tmp_path: Path) -> None:
    render_torch(a_torch_run(rungs=RUN.rungs[5:6]), tmp_path)
    assert not (tmp_path / "figures").exists()
    assert "figures/" not in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "figures").symlink_to(tmp_path.parent)
    with pytest.raises(ReportError, match="a link"):
        render_torch(RUN, tmp_path)


def test_programs_in_the_folder_are_compared(tmp_path: Path) -> None:
    (tmp_path / PLAIN).write_text("a\n", encoding="utf-8")
    assert programs(tmp_path) is None
    (tmp_path / FAST).write_text("a\nb <i>\n", encoding="utf-8")
    render_torch(RUN, tmp_path)
    assert "+b <i>" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "+b &lt;i&gt;" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_explain_shows_a_rung_of_such_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_ladder.main(["explain", "step-graph", saved(tmp_path)]) == 0
    assert "201 (198-206) us per step" in capsys.readouterr().out


def test_compare_is_a_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slower = with_rung(RUN, "step-graph", processes=[a_process(400.0), a_process(404.0)])
    base, new = saved(tmp_path / "a"), saved(tmp_path / "b", slower)
    assert run_ladder.main(["compare", base, new]) == 1
    assert "SLOWER" in capsys.readouterr().out
    assert run_ladder.main(["compare", new, base, "--format", "markdown"]) == 0
    assert "| step-graph | FASTER | 0.500 |" in capsys.readouterr().out
    assert run_ladder.main(["compare", base, new, base]) == 2
    assert run_ladder.main(["compare", base, "results/reference/h200/hidden-256"]) == 2


def test_open_shows_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    monkeypatch.setattr("reports.explorer.browser.open_page", opened.append)
    assert run_ladder.main(["open", saved(tmp_path)]) == 0
    assert opened == [tmp_path / "report.html"]
    assert "step-graph" in opened[0].read_text(encoding="utf-8")


def test_a_run_that_was_judged_alone_shows_its_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judged = a_torch_run(is_check=True, rungs=[replace(rung, processes=[]) for rung in RUN.rungs])
    assert run_ladder.main(["report", saved(tmp_path, judged)]) == 0
    assert "0.weight: 5,300 times" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "figures").exists()
    assert "0.weight: 5,300 times" in (tmp_path / "report.html").read_text(encoding="utf-8")
