from __future__ import annotations

from pathlib import Path

from ladder.records.sources import sources_of
from ladder.run.entries import all_entries
from ladder.run.sources import keep_sources
from tests.reports import sample

PARENTS = {"cudnn-softmax", "sparse-metrics", "cublas", "async", "naive"}


def test_a_run_keeps_its_stages_and_the_rungs_below(tmp_path: Path) -> None:
    entries, _ = all_entries()
    keep_sources([entries["cuda-graph"]], entries, tmp_path)
    found = sources_of(sample.results(), tmp_path)
    assert found is not None
    assert found.stages.keys() == {"cuda-graph", *PARENTS}
    assert found.stages["cuda-graph"][0] == "stages/classic/r6_cuda_graph.py"
    assert "class GraphEpoch" in found.files["stages/classic/r6_cuda_graph.py"]
    assert "stages/engine/parts.py" in found.stages["naive"]
    assert "stages/kernels/plain/gemm.cu" in found.stages["naive"]


def test_every_registered_stage_has_a_file(tmp_path: Path) -> None:
    entries, _ = all_entries()
    keep_sources(list(entries.values()), entries, tmp_path)
    found = sources_of(sample.results(), tmp_path)
    assert found is not None
    assert found.stages.keys() == entries.keys()
    assert (tmp_path / "sources.json.gz").stat().st_size < 200_000


def test_a_stage_of_the_user_s_is_kept_by_its_name_alone(tmp_path: Path) -> None:
    own = tmp_path / "mine" / "my_stage.py"
    own.parent.mkdir()
    own.write_text(
        'from stages import rung\n\nKERNEL = "fast.cu"\n\n\nclass Mine(rung("cublas").recipe.metrics):\n'
        '    """Mine."""\n\n\nSTAGE = rung("cublas").climb("mine", "Mine", metrics=Mine)\n'
    )
    (own.parent / "fast.cu").write_text("// fast\n")
    (own.parent / "secret.py").write_text("TOKEN = 1\n")
    entries, _ = all_entries([own])
    keep_sources([entries["mine"]], entries, tmp_path)
    found = sources_of(sample.results(), tmp_path)
    assert found is not None
    assert found.stages["mine"][:2] == ["my_stage.py", "fast.cu"]
    assert "secret.py" not in found.files
    assert str(tmp_path) not in "".join(found.files)
