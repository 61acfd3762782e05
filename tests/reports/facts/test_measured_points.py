from __future__ import annotations

from msgspec.structs import replace

from ladder.records.run import Results
from reports.facts.study_points import StudyResults
from tests.reports.sample import replace_stage
from tests.reports.study_sample import curve_results, run_at, study_results
from tools.site.regimes_map import measured_points


def with_problem(run: Results, **changes: object) -> Results:
    return replace(run, problem=replace(run.problem, **changes))


def test_every_measured_point_has_its_winner_and_lead() -> None:
    found = measured_points({}, {"studies/a.html": study_results([64, 128, 256])})
    assert [(one.layers, one.width, one.batch) for one in found] == [(3, 64, 32), (3, 128, 32)]
    first = found[0]
    assert (first.best.name, first.point, first.address) == ("bf16-gemm", "hidden-64", "studies/a.html")
    assert first.lead is not None
    assert first.lead.lead.reference.name == "jax-scan"


def test_studies_of_seeds_and_studies_without_references_have_no_points() -> None:
    results = study_results([64, 128, 256])
    alone = {
        name: replace(run, stages=[one for one in run.stages if one.group != "reference"])
        for name, run in results.runs.items()
    }
    assert measured_points({}, {"a": curve_results(), "b": StudyResults(results.study, alone)}) == []


def test_other_inputs_and_layers_of_several_widths_are_other_questions() -> None:
    run = run_at(64)
    assert len(measured_points({"a": run}, {})) == 1
    assert measured_points({"a": with_problem(run, inputs=100)}, {}) == []
    assert measured_points({"a": with_problem(run, hidden=[64, 32])}, {}) == []


def test_the_surest_of_several_measurements_comes_first() -> None:
    run = run_at(64)
    (process,) = next(one for one in run.stages if one.name == "bf16-gemm").processes
    twice = replace_stage(run, "bf16-gemm", processes=[process, process])
    newer = replace(run, created="2099-01-01T00:00:00Z")
    validated = with_problem(twice, validate_every=1)
    found = measured_points({"validated": validated, "old": run, "new": newer, "twice": twice}, {})
    assert [one.address for one in found] == ["twice", "new", "old", "validated"]


def test_a_network_without_hidden_layers_has_no_width() -> None:
    (only,) = measured_points({"a": with_problem(run_at(64), hidden=[])}, {})
    assert (only.layers, only.width) == (0, 0)
