from __future__ import annotations

from ladder.records.run import PartRecord
from reports.facts.resolved_recipe import resolved_recipe
from stages.registry import load_all
from tests.reports import sample


def test_only_parts_that_have_effect_are_named() -> None:
    stages = {name: load_all()[name].stage for name in ("large-batch", "persistent-grid", "fused-head", "cpu-cores")}
    own = {name: [part.name for part in stage.parts if not part.replaced] for name, stage in stages.items()}
    alone, whole = ["data", "metrics", "launch"], [part.name for part in stages["fused-head"].parts]
    assert own == {"large-batch": alone, "persistent-grid": alone, "fused-head": whole, "cpu-cores": whole}
    for regime, name, known in (("graph", "large-batch", True), ("one kernel", "persistent-grid", False)):
        parts = [PartRecord(p.name, p.chosen, p.file, known and p.replaced) for p in stages[name].parts]
        run = sample.replace_stage(sample.results(), "cublas", recipe=parts, regime=regime)
        assert [part.name for part in resolved_recipe(run.stages[7], run)] == alone


def test_every_rung_of_ours_knows_the_files_of_its_parts() -> None:
    stage = load_all()["last-layer"].stage
    files = {part.name: part.file for part in stage.parts}
    assert files["launch"] == "stages/classic/cuda_graph.py"
    assert files["head"] == "stages/streamed/last_layer_head.py"
    assert len(files) == 8
