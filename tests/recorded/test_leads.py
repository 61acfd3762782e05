"""Every lead that README, docs/ and the reports show, recomputed from recorded results alone.

The recomputation reads plain JSON and shares no code with `ladder` or `reports`, but for a ratio's interval. Only the
texts to check are rendered by them.
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ladder.records.run import load
from ladder.records.statistics import GPU_SPREAD, VERDICT_CONFIDENCE, Interval, ratio_interval
from reports.facts.stage_facts import StageFacts
from reports.facts.study_points import load_results
from reports.screens.details import all_columns
from reports.screens.rung import measured_facts
from tests.reports.reporting import report, rows_of, study_report

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference"
RUNS = sorted(path.parent for path in REFERENCE.glob("h*/*/results.json.gz"))
STUDIES = sorted(path.parent for path in REFERENCE.glob("*/studies/*/study.json"))
EXACT = {"float32": 3, "tf32": 2, "bfloat16": 1, "float16": 1}
CLASSES = {"float32": "float32", "tf32": "tf32", "bfloat16": "bf16/fp16", "float16": "bf16/fp16"}
VALIDATION = {"0": "no validation", "1": "with validation"}
FACTOR = r"(\d[\d,]*\.?\d*)x"


def plain(folder: Path) -> dict[str, Any]:
    """The record of a run."""
    found: dict[str, Any] = json.loads(gzip.decompress((folder / "results.json.gz").read_bytes()))
    return found


@cache
def stages(folder: Path) -> list[dict[str, Any]]:
    """The passed and timed stages of a run."""
    run = plain(folder)
    return [stage for stage in run["stages"] if stage["status"] == "passed" and stage.get("timing")]


def host_us(stage: dict[str, Any]) -> float:
    timing = stage["timing"]
    runs = [run for process in stage["processes"] for run in process["runs_s"]]
    return float(statistics.median(runs) / timing["epochs"] / timing["steps_per_epoch"] * 1e6)


def event_us(stage: dict[str, Any]) -> float | None:
    timing = stage["timing"]
    runs = [run for process in stage["processes"] for run in process["gpu_runs_s"] or []]
    return statistics.median(runs) / timing["epochs"] / timing["steps_per_epoch"] * 1e6 if runs else None


def busy_us(stage: dict[str, Any]) -> float | None:
    """The GPU's kernels and copies a step, as the profile saw them: CUPTI's before nsys's."""
    profiles = sorted(stage.get("profiles", []), key=lambda profile: profile["tool"])
    return profiles[0]["split"]["kernels_us"] + profiles[0]["split"]["copies_us"] if profiles else None


def lead(stage: dict[str, Any], run: list[dict[str, Any]]) -> tuple[float, str, bool] | None:
    """The smallest ratio to a reference that counts, its name, and whether it is one of GPU times."""
    references = [one for one in run if one["group"] == "reference"]
    on_gpu = stage["device"] == "gpu" and "gpu" in [one["device"] for one in references]
    found = []
    for one in references:
        if (one["device"] == "gpu") != on_gpu or EXACT[one["precision"]] < EXACT[stage["precision"]]:
            continue
        found.append((host_us(one) / host_us(stage), one["name"], False))
        busy = busy_us(one)
        if one["device"] == "gpu" and event_us(one) is None and busy is not None:
            found.append((busy / (event_us(stage) or busy_us(stage) or host_us(stage)), one["name"], True))
    return min(found, key=lambda pair: pair[0], default=None)


def named(run: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(stage for stage in run if stage["name"] == name)


def fastest_rung(run: list[dict[str, Any]], precision: str = "") -> dict[str, Any]:
    """The fastest rung on the GPU, of one class of precision or of any."""
    rungs = [one for one in run if one["group"] != "reference" and one["device"] == "gpu"]
    return min((one for one in rungs if precision in ("", CLASSES[one["precision"]])), key=host_us)


def agrees(shown: str, value: float) -> bool:
    """Whether the first factor of a text is the value, rounded to the digits shown."""
    (text,) = re.findall(FACTOR, shown)[:1] or [""]
    digits = len(text.partition(".")[2])
    return bool(text) and abs(float(text.replace(",", "")) - value) <= 0.5001 * 10**-digits


def tables(text: str) -> Iterator[list[dict[str, str]]]:
    """The rows of each table by the names of its columns; a repeated name gets a number."""
    for block in re.findall(r"(?:^\|.*\|\n?)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block.splitlines()]
        header = [name if name not in lines[0][:index] else f"{name} 2" for index, name in enumerate(lines[0])]
        yield [dict(zip(header, cells, strict=True)) for cells in lines[2:]]


def between(page: str, name: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.split(f"<!-- {name}:begin -->")[1].split(f"<!-- {name}:end -->")[0]


def check(shown: str, reference: str, stage: dict[str, Any], run: list[dict[str, Any]]) -> None:
    """Fail unless a shown lead and the reference beside it are the recomputed ones."""
    found = lead(stage, run)
    assert found is not None
    times, name, on_gpu_time = found
    assert agrees(shown, times), f"{stage['name']}: {shown} is shown, {times:.4g} is recorded"
    assert reference.strip("`") == name
    assert ("GPU time" in shown) == on_gpu_time


def in_words(key: str, shown: str) -> str:
    if (key, shown) == ("hidden", "none"):
        return "no hidden layer"
    return VALIDATION[shown] if key == "validate_every" else f"{key.replace('_', ' ')} {shown}"


def point_folder(study: Path, text: str) -> Path:
    """The folder of a study's point by its words: `batch size 8`, `hidden 64`, `the run`."""
    for point in json.loads((study / "study.json").read_bytes())["points"]:
        words = []
        for key, value in point["values"].items():
            shown = "-".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
            words.append(in_words(key, shown))
        if text == (", ".join(words) or "the run"):
            return study / str(point["name"])
    raise AssertionError(f"{study.name} has no point {text!r}")


def test_a_wrong_lead_is_caught() -> None:
    assert agrees("8.59x (8.54-8.63)", 8.5868)
    assert not agrees("8.99x", 8.5868)
    assert not agrees("-", 8.5868)


def test_the_leads_of_readme() -> None:
    ((most, least),) = tables(between("README.md", "leads"))
    found = {}
    for folder in sorted(RUNS, key=_created):  # of each network, the newest
        if leads := lead(fastest_rung(stages(folder)), stages(folder)):
            found[f"{_network(folder)}, batch {plain(folder)['problem']['batch_size']}"] = leads[0], folder
    (of_studies,) = tables(between("docs/studies.md", "study-leads"))
    for row in of_studies:
        name, point = row["Study"].partition(",")[0], row["Point"]
        folder = point_folder(newest(name.strip("`")), point)
        found[f"{name}, {point}"] = (lead(fastest_rung(stages(folder)), stages(folder)) or (0.0,))[0], folder
    for shown, pick, word in ((most, max, "Largest"), (least, min, "Smallest")):
        where = pick(found, key=lambda where: found[where][0])
        assert shown[""] == f"{word}: {where}"
        run, rung = stages(found[where][1]), fastest_rung(stages(found[where][1]))
        assert shown["Rung"] == f"`{rung['name']}`"
        assert plain(found[where][1])["environment"]["gpu"]["name"].endswith(shown["GPU"])
        check(shown["Lead"], shown["Reference"], rung, run)
        between_us = interval(run, rung["name"])
        is_noise = between_us.low <= 1 <= between_us.high
        assert is_noise == ("within noise" in shown["Lead"])
        assert is_noise or f"({between_us.low:.1f}-{between_us.high:.1f})" in shown["Lead"]
        both = rung, named(run, shown["Reference"].strip("`"))
        assert ("‡" in shown["Lead"]) == any(all(one["disturbed"] for one in stage["processes"]) for stage in both)


def interval(run: list[dict[str, Any]], name: str) -> Interval:
    """Where the lead of a rung that the GPU paces may lie, over such a reference."""
    found = lead(named(run, name), run)
    assert found is not None
    rung, reference = (
        [statistics.median(process["runs_s"]) / stage["timing"]["epochs"] for process in stage["processes"]]
        for stage in (named(run, name), named(run, found[1]))
    )
    return ratio_interval(rung, reference, spread=GPU_SPREAD)


def test_readme_names_recorded_times_and_every_recording_of_the_first_lead() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    folder = REFERENCE / "h100-80gb-hbm3/logistic"
    graph, last = (f"{host_us(named(stages(folder), name)):.3g}" for name in ("torch-graph", "persistent-cluster"))
    first = f"{host_us(named(stages(folder), 'naive')):.0f}"
    assert f"10 classes) in about {first} us, and the last rung, on Hopper or newer, in {last} us." in text
    assert f"with one CUDA graph per epoch, takes {graph} us." in text
    again: list[float] = []
    for other in (file.parent for file in sorted(REFERENCE.glob("h?00*/**/results.json.gz")) if file.parent != folder):
        run, its = plain(other), plain(other)["problem"]
        alike = (its["hidden"], its["batch_size"], its["networks"], run["settings"]["target_accuracy"])
        rungs = [one for one in stages(other) if one["name"] == "persistent-cluster" and alike == ([], 128, 1, None)]
        again += [found[0] for rung in rungs if (found := lead(rung, stages(other))) is not None]
    times, _, _ = lead(named(stages(folder), "persistent-cluster"), stages(folder)) or (0.0, "", False)
    known = interval(stages(folder), "persistent-cluster")
    assert f"[about {times:.0f} times](#why-trust-it) as fast" in text
    told = f"leads by {times:.2f}x ({VERDICT_CONFIDENCE:.1%} interval {known.low:.2f} to {known.high:.2f}), from two"
    assert (
        f"{told} processes each, whose scatter [counts as {GPU_SPREAD:.0%} at least](docs/statistics.md#intervals)."
        in text
    )
    assert {len(named(stages(folder), name)["processes"]) for name in ("torch-graph", "persistent-cluster")} == {2}
    assert f"Other recordings gave {min(again):.2f} to {max(again):.2f}." in text
    anywhere = sorted((one for one in stages(folder) if one["group"] != "reference"), key=host_us)
    second = next(one for one in anywhere if one["precision"] == "float32" and one["name"] != "persistent-cluster")
    times, _, _ = lead(second, stages(folder)) or (0.0, "", False)
    assert f"the next, `{second['name']}`, leads by {times:.2f}x." in text
    validated = stages(point_folder(newest("energy"), "no hidden layer, with validation"))
    times, _, _ = lead(named(validated, "persistent-cluster"), validated) or (0.0, "", False)
    assert f"With validation after every epoch, the first leads by [{times:.2f}x](docs/studies.md) (H200)." in text


def _created(folder: Path) -> str:
    return str(plain(folder)["created"])


def _network(folder: Path) -> str:
    problem = plain(folder)["problem"]
    return "-".join(map(str, (problem["inputs"], *problem["hidden"], problem["classes"])))


def test_the_leads_of_the_recorded_networks() -> None:
    rows = [row for rows in tables(between("docs/recordings.md", "networks")) for row in rows]
    assert len(rows) >= len(RUNS)
    for row in rows:
        folder = (ROOT / "docs" / row["Network, batch"].split("](")[1].removesuffix(")")).resolve().parent
        run, rung = stages(folder), row["Fastest rung"].strip("`")
        assert rung == fastest_rung(run, row["Precision"])["name"]
        reference, _, variant = row["Fastest reference"].partition(", ")
        assert variant == named(run, reference.strip("`"))["detail"]
        check(row["Lead"], reference, named(run, rung), run)


def test_the_times_of_two_gpus_side_by_side() -> None:
    (rows,) = tables(between("docs/recordings.md", "gpus"))
    on = {(_network(folder), folder.parent.name[:4]): stages(folder) for folder in RUNS}
    shown = [row["Network, batch"].partition(",")[0] for row in rows]
    assert sorted(shown) == sorted(network for network, gpu in on if gpu == "h100")
    for network, row in zip(shown, rows, strict=True):
        first, second = on[network, "h100"], on[network, "h200"]
        both = [one for one in second if one["name"] in {other["name"] for other in first}]
        references = [one for one in both if one["group"] == "reference"]
        rung = min((one for one in both if one["group"] != "reference"), key=host_us)
        found = {"`cuda-graph`": named(second, "cuda-graph"), "Fastest rung": rung}
        for column, stage in (found | {"Fastest reference": min(references, key=host_us)}).items():
            name, us = stage["name"], [host_us(named(first, stage["name"])), host_us(stage)]
            assert name in column + row[column]
            assert [float(one) for one in re.findall(r"(?<=[` ])[\d.]+(?=[,:])", f" {row[column]}")] == pytest.approx(
                us, rel=0.006
            )
            assert agrees(row[column], us[0] / us[1])


def newest(study: str) -> Path:
    """The study's folder of the GPU that was recorded last."""

    def created(folder: Path) -> str:
        return max(_created(file.parent) for file in folder.glob("*/results.json.gz"))

    return max((folder for folder in STUDIES if folder.name == study), key=created)


def test_the_leads_of_the_studies_page() -> None:
    (rows,) = tables(between("docs/studies.md", "study-leads"))
    for row in rows:
        name, _, gpu = row["Study"].partition(", ")
        study = newest(name.strip("`"))
        run = stages(point_folder(study, row["Point"]))
        assert row["Fastest rung"].strip("`") == fastest_rung(run)["name"]
        check(row["Lead"], row["Fastest reference"], fastest_rung(run), run)
        environment = plain(point_folder(study, row["Point"]))["environment"]
        assert environment["gpu"]["name"].endswith(gpu.removeprefix("2 x ") or "H200")
        assert row["Commit"] == environment["code"]["git_commit"][:7]


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: str(folder.relative_to(REFERENCE)))
def test_the_leads_of_a_report(folder: Path) -> None:
    results, run = load(folder), stages(folder)
    text, whole = report(results), rows_of(all_columns(results))
    shown = {row["Stage"]: row["Speedup over the fastest reference"] for row in whole}
    (rows,) = (rows for rows in tables(text) if "Speedup over the fastest reference" in rows[0])
    short = {
        row["Stage"].strip("`"): row["Speedup over the fastest reference"]
        for row in rows
        if row["Stage"].startswith("`")
    }
    for stage in run:
        if stage["group"] == "reference":  # rungs alone are compared
            assert shown[stage["name"]] == short[stage["name"]] == ""
            continue
        found = lead(stage, run)
        assert (found is None) == (shown[stage["name"]] == "-")
        if found is None:
            continue
        times, name, on_gpu_time = found
        assert agrees(short[stage["name"]], times)
        check(shown[stage["name"]], name, stage, run)
        view = StageFacts(next(one for one in results.stages if one.name == stage["name"]), results)
        ((who, clock, said),) = re.findall(
            rf"as fast as the fastest reference, ([^,=]+)(, on GPU time)?={FACTOR}",
            "\n".join(map("=".join, measured_facts(view))),
        )
        assert agrees(f"{said}x", times)
        assert (who, bool(clock)) == (name, on_gpu_time)


@pytest.mark.parametrize("folder", STUDIES, ids=lambda folder: folder.name)
def test_the_leads_of_a_study(folder: Path) -> None:
    results = load_results(folder)
    checked = 0
    for rows in tables(study_report(results)):
        for row in rows if rows and "Lead" in rows[0] else []:
            run, rung = stages(point_folder(folder, row["Point"])), row["Fastest rung"].strip("`")
            assert rung == fastest_rung(run, row["Precision"])["name"]
            check(row["Lead"], row["Fastest reference"], named(run, rung), run)
            checked += 1
    compared = any(one["group"] == "reference" for name in results.runs for one in stages(folder / name))
    assert bool(checked) == (compared and folder.name != "loss-curves")  # which shows curves, and no times
