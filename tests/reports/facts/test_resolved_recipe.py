from __future__ import annotations

from ladder.records.run import PartRecord
from reports.facts.resolved_recipe import ResolvedPart, resolved_recipe
from stages.registry import load_all
from tests.reports import sample


def test_a_recorded_recipe_names_every_part_with_its_file_and_the_rung_that_chose_it() -> None:
    parts = [PartRecord("gemm", "CublasGemm", "stages/x.py"), PartRecord("launch", "OneByOne", "stages/y.py")]
    run = sample.replace_stage(sample.results(), "cublas", recipe=parts)
    assert resolved_recipe(next(one for one in run.stages if one.name == "cublas"), run) == [
        ResolvedPart("gemm", "CublasGemm", "stages/x.py", "cublas"),
        ResolvedPart("launch", "OneByOne", "stages/y.py", "naive"),
    ]


def test_an_older_file_knows_the_parts_that_its_rungs_changed() -> None:
    run = sample.results()
    assert resolved_recipe(next(one for one in run.stages if one.name == "cublas"), run) == [
        ResolvedPart("gemm", "CublasGemm", "", "cublas"),
        ResolvedPart("metrics", "AsyncMetrics", "", "async"),
    ]


def test_every_rung_of_ours_knows_the_files_of_its_parts() -> None:
    stage = load_all()["last-layer"].stage
    files = {part.name: part.file for part in stage.parts}
    assert files["launch"] == "stages/classic/r6_cuda_graph.py"
    assert files["head"] == "stages/streamed/r2_last_layer.py"
    assert len(files) == 8
