from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from ladder.records.run import Results, save
from ladder.records.study import save_study
from reports.markdown.all_documents import markers, update_documents
from reports.markdown.readme import leads_sentence, leads_table
from tests.reports import sample
from tests.reports.facts.test_baselines import busy
from tests.reports.study_sample import curve_results, study_results


def test_readme_tells_the_largest_and_the_smallest_lead_of_the_newest_runs() -> None:
    newest, older = sample.results(), _slower(replace(sample.results(), created="2020-01-01T00:00:00+00:00"))
    slower = _slower(replace(newest, problem=replace(newest.problem, hidden=[])))
    runs = [("h100/hidden-256", newest), ("h100/logistic", slower), ("h200/hidden-256", older)]
    told = leads_sentence(runs, [study_results([64, 128, 256])])
    assert told.startswith("**The lead**, on an NVIDIA H200, of the fastest rung over ")
    assert "1.45x (1.44-1.53) in float32 in 784-256-10 down to 1.25x, within noise in float32 in 784-10. In" in told
    assert told.endswith(", in `made-up` at hidden 64 (784-64-64-64-10, batch 32).")  # of equal leads, the first
    assert leads_sentence(runs[:1], []).endswith("exact: 1.45x (1.44-1.53) in float32 in 784-256-10.")
    other = replace(slower, environment=slower.environment | {"gpu": {"name": "NVIDIA H100"}})
    told = leads_sentence([runs[0], ("h100/logistic", other)], [])
    assert "in float32 in 784-256-10 on an NVIDIA H200 down to 1.25x, within noise in float32 in 784-10 on an" in told
    told = leads_sentence([runs[0], ("h100/logistic", busy(slower, "jax-scan", 40.0, events=False))], [])
    assert told.endswith(" in 784-10 (GPU time). GPU time: without the reference's own waits.")
    assert leads_sentence([], []) == ""


def _slower(run: Results) -> Results:
    """The run without its fastest rung."""
    return sample.replace_stage(run, "cublas", status="failed", reason="x")


def test_the_page_of_studies_has_a_row_for_each_point() -> None:
    rows = leads_table([study_results([64, 128, 256])]).splitlines()[2:]
    assert [row.split("|")[2].strip() for row in rows] == ["hidden 64", "hidden 128"]
    assert leads_table([]) == ""


def test_both_pages_are_written_and_studies_of_curves_left_out(tmp_path: Path) -> None:
    readme, page, reference = tmp_path / "README.md", tmp_path / "docs" / "studies.md", tmp_path / "reference"
    for results in (study_results([64, 128, 256]), curve_results()):
        folder = reference / "h200" / "studies" / f"study-{len(results.runs)}"
        folder.mkdir(parents=True)
        save_study(replace(results.study, name=folder.name), folder)
        for name, run in results.runs.items():
            (folder / name).mkdir()
            save(run, folder / name / "results.json")
    (reference / "h200" / "hidden-256").mkdir()
    save(sample.results(), reference / "h200" / "hidden-256" / "results.json")
    page.parent.mkdir()
    readme.write_text("\n".join((*markers("ladder"), *markers("leads"))))
    page.write_text("\n".join(markers("study-leads")))
    assert update_documents(tmp_path, reference)
    assert "1.45x" in readme.read_text()
    assert "`study-2`" in page.read_text()
    assert "`study-6`" not in page.read_text()
    assert not update_documents(tmp_path, reference)
