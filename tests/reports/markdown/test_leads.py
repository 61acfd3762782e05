from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from ladder.records.run import Results, save
from ladder.records.study import save_study
from reports.markdown.all_documents import markers, update_documents
from reports.markdown.readme import leads_block, leads_table
from tests.reports import sample
from tests.reports.facts.test_baselines import busy
from tests.reports.study_sample import curve_results, study_results


def test_readme_has_the_largest_and_the_smallest_lead_of_the_newest_runs() -> None:
    newest, older = sample.results(), _slower(replace(sample.results(), created="2020-01-01T00:00:00+00:00"))
    slower = _slower(replace(newest, problem=replace(newest.problem, hidden=[])))
    runs = [("h100/hidden-256", newest), ("h100/logistic", slower), ("h200/hidden-256", older)]
    studies = [study_results([64, 128, 256])]
    *rows, _, recorded = leads_block(runs, studies).splitlines()[2:]
    assert recorded == "Recorded by [older code](docs/status.md#recorded), 2026-11-20."
    assert rows == [
        "| Largest: `made-up`, hidden 128 | H200 | `bf16-gemm` | `jax-scan` | 3.36x (1.49-7.58) |",
        "| Smallest: 784-10, batch 128 | H200 | `async` | `jax-scan` | 1.25x, within noise |",
    ]
    alone = leads_block(runs[:1], []).splitlines()[2:4]
    assert [line.partition(":")[0] for line in alone] == ["| Largest", "| Smallest"]
    assert {line.partition(": ")[2] for line in alone} == {
        "784-256-10, batch 128 | H200 | `cublas` | `jax-scan` | 1.45x (1.40-1.51) |"
    }
    leads = sample.replace_stage(newest, "jax-scan", status="failed", reason="x")
    (most, of_study) = leads_block([("h100/hidden-256", leads)], studies).splitlines()[2:4]
    assert most.endswith(" | `torch-eager` | 11.6x (6.9-19.6) |")
    assert of_study.startswith("| Smallest: `made-up`, hidden 64 | ")
    other = replace(slower, environment=slower.environment | {"gpu": {"name": "NVIDIA H100"}})
    assert " | H100 | " in leads_block([runs[0], ("h100/logistic", other)], []).splitlines()[3]
    waits = busy(slower, "jax-scan", 40.0, events=False)
    assert ", GPU time |\n\n" in leads_block([runs[0], ("h100/logistic", waits)], [])
    assert leads_block([], []) == ""
    stage = newest.stage("cublas")
    assert stage is not None
    busy_times = [replace(process, disturbed=["x"]) for process in stage.processes]
    disturbed = leads_block([("", sample.replace_stage(newest, "cublas", processes=busy_times))], [])
    assert "1.45x (1.40-1.51)‡ |" in disturbed
    assert disturbed.endswith(" ‡: all processes were disturbed.")


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
