from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import run_ladder
from ladder.records.run import Results, ResultsError, Spread, Timing, load, save
from ladder.run.code_watch import code_today
from ladder.study.study_file import read_study
from reports.facts import numbers
from reports.facts.verdict import gains
from reports.markdown import all_documents
from reports.markdown.all_documents import documents, markers, outdated, update_documents
from reports.markdown.climb import FOLDER
from reports.markdown.readme import IN_TABLE, RecordedRuns, repeats_block
from reports.report_error import ReportError
from tests.reports import sample
from tests.reports.figures.svg import words

ROOT = Path(__file__).parents[3]
LADDER, NETWORKS, PICTURE, CPU, GPUS = map(markers, ("ladder", "networks", "picture", "cpu", "gpus"))
BEGIN, END = LADDER


@pytest.fixture
def readme(tmp_path: Path) -> Path:
    path = tmp_path / "README.md"
    networks, picture = "\n".join(NETWORKS), "\n".join(PICTURE)
    path.write_text(f"before\n{networks}\nbetween\n{BEGIN}\nold\n{END}\nafter\n{picture}\n")
    return path


def record(run: Results, readme: Path, name: str) -> Path:
    reference = readme.parent / "results" / "reference"
    folder = reference / name
    folder.mkdir(parents=True)
    save(run, folder / "results.json")
    return reference


def test_the_documents_of_this_project_show_the_recorded_runs() -> None:
    readme, reference = ROOT / "README.md", ROOT / "results" / "reference"
    runs = [*RecordedRuns(reference).runs(readme), *RecordedRuns(reference).runs(readme, on_cpu=True)]
    plans = [read_study(path, "", "") for path in sorted((ROOT / "experiments").glob("*.toml"))]
    stale = [page.name for page in outdated(documents(ROOT, reference, plans, code_today()))]
    assert not stale, "`python run_ladder.py readme` writes them again"
    pages = "".join(page.read_text(encoding="utf-8") for page in (readme, *(ROOT / "docs").rglob("*.md")))
    assert [folder for folder, _ in runs if f"{folder}/report.md)" not in pages] == []


def test_the_command_gives_today_s_code(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    monkeypatch.setattr(all_documents, "update_documents", lambda *arguments: given.extend(arguments))
    assert run_ladder.main(["readme"]) == 0
    assert given[-1] == code_today()


def test_only_what_is_between_the_markers_changes(readme: Path) -> None:
    reference = record(sample.results(), readme, "h200/hidden-256")
    assert outdated(documents(readme.parent, reference))
    assert update_documents(readme.parent, reference)
    text = readme.read_text()
    assert text.startswith(f"before\n{NETWORKS[0]}\n")
    assert f"\n{NETWORKS[1]}\nbetween\n{BEGIN}\n" in text
    assert f"{END}\nafter\n{PICTURE[0]}\n" in text
    assert text.endswith(f"{PICTURE[1]}\n")
    assert "old" not in text.splitlines()
    assert "](docs/ladder.svg)" in text
    assert "on H200" in text
    assert not outdated(documents(readme.parent, reference))
    assert not update_documents(readme.parent, reference)
    changed = sample.replace_stage(sample.results(), "async", status="failed", reason="loss curve")
    save(changed, reference / "h200" / "hidden-256" / "results.json")
    assert outdated(documents(readme.parent, reference))


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (sample.synthetic_results(), "NOT MNIST"),
        (replace(sample.results(), stages=sample.results().stages[:1]), "/report.md) | - | - |"),
    ],
)
def test_other_data_is_a_warning_and_a_run_with_nothing_to_compare_a_row(run: Results, said: str, readme: Path) -> None:
    update_documents(readme.parent, record(run, readme, "h200/hidden-256"))
    assert said in readme.read_text()


def test_the_smaller_network_comes_first(readme: Path) -> None:
    run = sample.results()
    logistic = replace(run, problem=replace(run.problem, hidden=[]))
    record(run, readme, "h200/hidden-256")
    reference = record(logistic, readme, "h200/logistic")
    assert [folder.split("/")[-1] for folder, _ in RecordedRuns(reference).runs(readme)] == ["logistic", "hidden-256"]
    update_documents(readme.parent, reference)
    text = readme.read_text()
    assert text.index("[784-10, 128]") < text.index("[784-256-10, 128]") < text.index("### 784-10 on MNIST")


def test_every_gpu_has_a_table_of_all_its_runs_and_one_gpu_its_first_ladder(readme: Path) -> None:
    record(replace(sample.results(), created="2027-01-01T00:00:00+00:00"), readme, "h200/hidden-256")
    record(sample.results(), readme, "a100/hidden-256")
    reference = record(sample.deeper_results(), readme, "h200/hidden-128-128-128")
    update_documents(readme.parent, reference)
    text = readme.read_text()
    assert text.count("| Network, batch |") == 2
    assert text.count("| Rung |") == 1
    assert text.count("NVIDIA H200, driver 580.65, host a | b; recorded 2027-01-01") == 1
    assert text.count(".svg)") == 1
    picture = readme.parent / "docs" / "ladder.svg"
    assert "784-256-10, batch 128, MNIST, NVIDIA H200" in words(picture.read_text())
    of_h200 = text[text.index("### Every recorded network, on H200") :]
    assert of_h200.index("h200/hidden-256/report.md") < of_h200.index("h200/hidden-128-128-128/report.md")
    environment = {**sample.results().environment, "gpu": {"name": "NVIDIA H100 80GB HBM3"}}
    record(replace(sample.results(), environment=environment), readme, f"{FOLDER}/hidden-256")
    update_documents(readme.parent, reference)  # README and the climb tell of one GPU, also if another was later
    assert "784-256-10, batch 128, MNIST, NVIDIA H100 80GB HBM3" in " ".join(words(picture.read_text()))


def test_what_two_gpus_timed_stands_side_by_side(readme: Path) -> None:
    run = sample.replace_stage(sample.results(), "cublas", regime="graph")
    page = readme.parent / "docs" / "recordings.md"
    page.parent.mkdir()
    page.write_text("\n".join(GPUS))
    record(sample.deeper_results(), readme, "h200/hidden-128-128-128")
    reference = record(run, readme, "h200/hidden-256")
    update_documents(readme.parent, reference)
    assert "|" not in page.read_text()  # no network on two GPUs
    environment = {"gpu": {"name": "NVIDIA H100 80GB HBM3"}, "code": {"git_commit": "fedcba9876543210"}}
    slower = sample.replace_stage(run, "cublas", timing=at_times(run, "cublas", 2.0))
    slower = sample.replace_stage(slower, "async", timing=at_times(run, "async", 4.0))
    slower = sample.replace_stage(slower, "jax-scan", status="failed")
    record(replace(slower, environment=environment), readme, "h100/hidden-256")
    update_documents(readme.parent, reference)
    header, _, row = [line for line in page.read_text().splitlines() if line.startswith("|")]
    assert "Commits, H100 80GB HBM3 and H200" in header
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[:2] == ["784-256-10, 128", numbers.MISSING]  # cuda-graph crashed
    assert cells[2].startswith("`cublas` 73.5, 36.8: 2.0")
    assert cells[3].startswith("`torch-amp` 214, 214: 1.0")  # the fastest of those that both timed
    assert (cells[4], cells[5][:4]) == ("1", "2.00")  # without `async`, whose kernels the host launches
    assert cells[6] == "fedcba9, 0123456"


def test_recordings_of_one_network_on_one_gpu_are_compared(readme: Path) -> None:
    run = sample.replace_stage(sample.results(), "cublas", regime="graph")
    slower = sample.replace_stage(run, "cublas", timing=at_times(run, "cublas", 1.25))
    slower = sample.replace_stage(slower, "naive", timing=at_times(run, "naive", 2.0))
    slower = sample.replace_stage(slower, "async", status="failed")
    slower = sample.replace_stage(slower, "bf16-gemm", status="failed")
    reference = record(run, readme, "h200/hidden-256")
    record(slower, readme, "h200/studies/again/run")
    record(replace(slower, problem=replace(run.problem, batch_size=7)), readme, "h200/studies/batch/run")
    record(replace(slower, environment={"gpu": {"name": "NVIDIA H100"}}), readme, "h100/hidden-256")
    launched, references, rungs = [line.split(" | ") for line in repeats_block(reference).splitlines()[2:]]
    assert launched[1:4] == ["2", "50%", "100%"]
    assert launched[4].startswith("`naive` in 784-256-10, 85.5 to 171 us")
    assert references[1:4] == ["2", "0%", "0%"]
    assert rungs[1:4] == ["1", "25%", "25%"]


def at_times(run: Results, name: str, factor: float) -> Timing:
    """A stage's timing, so many times as slow."""
    stage = run.stage(name)
    assert stage
    assert stage.timing
    epoch = stage.timing.epoch_s
    slower = Spread(epoch.median * factor, epoch.min * factor, epoch.max * factor)
    return replace(stage.timing, epoch_s=slower)


def ladder(text: str) -> dict[str, list[str]]:
    """The cells of each rung's row, by its name."""
    lines = [line for line in text.split(BEGIN)[1].splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return {row[0].strip("`"): row[1:] for row in rows}


def test_the_words_for_a_change_come_from_the_record(readme: Path) -> None:
    changed = sample.replace_stage(sample.results(), "async", words="the host waits | less")
    update_documents(readme.parent, record(changed, readme, "h200/hidden-256"))
    assert "| the host waits \\| less |" in readme.read_text()


def test_a_long_ladder_keeps_the_rungs_that_change_most_and_those_below_them(readme: Path) -> None:
    update_documents(readme.parent, ROOT / "results" / "reference")
    shown = ladder(readme.read_text())
    assert len(shown) <= IN_TABLE
    for cells in shown.values():
        assert not cells[0] or cells[0].strip("`") in shown
    assert {"naive", "cuda-graph", "persistent-cluster"} <= set(shown)


def test_pages_of_docs_with_markers_are_written_too(readme: Path) -> None:
    page = readme.parent / "docs" / "recordings.md"
    page.parent.mkdir()
    page.write_text("\n".join(NETWORKS))
    reference = record(sample.results(), readme, "h200/hidden-256")
    assert update_documents(readme.parent, reference)
    assert "](../results/reference/h200/hidden-256/report.md)" in page.read_text()
    assert not outdated(documents(readme.parent, reference))
    page.write_text("\n".join(NETWORKS))
    assert outdated(documents(readme.parent, reference))


def test_without_recorded_runs_the_block_is_empty(readme: Path) -> None:
    update_documents(readme.parent, readme.parent / "results" / "reference")
    assert f"between\n{BEGIN}\n{END}\nafter\n" in readme.read_text()


@pytest.mark.parametrize("text", ["nothing", f"{END} {BEGIN}", BEGIN, END])
def test_missing_markers_are_named(readme: Path, text: str) -> None:
    readme.write_text(text)
    with pytest.raises(ReportError, match=r"README\.md: has no <!-- ladder:begin --> followed by"):
        update_documents(readme.parent, readme.parent)
    assert readme.read_text() == text


def test_a_broken_record_is_named(readme: Path) -> None:
    reference = record(sample.results(), readme, "h200/hidden-256")
    (reference / "h200" / "hidden-256" / "results.json").write_text("{")
    with pytest.raises(ResultsError, match=r"results\.json"):
        update_documents(readme.parent, reference)


def test_a_run_of_a_cpu_has_a_row_in_a_table_of_its_own(readme: Path) -> None:
    run = sample.results()
    readme.write_text(readme.read_text() + "\n".join(CPU) + "\n")
    loops = replace(run.stages[-1], name="cpu-loops", group="cpu", device="cpu")
    environment = {**run.environment, "gpu": {"none": "no driver"}}
    on_cpu = replace(run, stages=[*run.stages, loops], environment=environment)
    record(run, readme, "h200/hidden-256")
    reference = record(on_cpu, readme, "amd-epyc-2-cores/hidden-256")
    update_documents(readme.parent, reference)
    before, _, of_cpu = readme.read_text().partition(CPU[0])
    assert "](results/reference/amd-epyc-2-cores/hidden-256/report.md)" in of_cpu
    assert of_cpu.count("[784-256-10, 128]") == 1
    assert "amd-epyc" not in before
    assert before.count("| Network, batch |") == 1


def test_no_page_gives_a_gain_within_noise_as_one() -> None:
    """Beside an interval a ratio claims something; README, the report, the climb and the essay judge a rung alike."""
    folder = ROOT / "results" / "reference" / "h100-80gb-hbm3" / "logistic"
    pages = [ROOT / "README.md", folder / "report.md", ROOT / "docs" / "essay.md", *(ROOT / "docs/climb").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    judged = {stage.name: gain for stage, gain in gains(load(folder / "results.json.gz"))}
    assert judged["sparse-metrics"].is_noise
    for name, gain in judged.items():
        claimed = numbers.ratio_spread(gain.times, *gain.interval)
        assert (claimed in text) is not gain.is_noise, name
