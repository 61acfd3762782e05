"""The variant that a reference builds with, by GPU, network and batch, and the references that each study has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from common import choice as timed
from common.errors import UsageError
from common.problem import Problem
from ladder.study.study_file import read_study
from ladder.study.study_session import options_at
from stages.references import choices, jax_scan, jax_scan_bf16, torch_graph
from stages.references.choices import MAY_GAIN, SLOWER, Choice, Rule, keep, nearest, read, variant_for
from stages.registry import load_all
from tests.ladder.gpus import H200, RTX_3060
from tests.stages.engine.test_step import random_split

LOGISTIC = Problem(784, 10)
WIDE = Problem(784, 10, (4096, 4096, 4096), batch_size=32)
LARGE_BATCH = Problem(784, 10, (256,), batch_size=8192)
NAMES = ("slow", "fast", "wide")
TRAIN = random_split(8, 9, 10)
RULE = Rule("slow", "wide", "images", 1024)


def choose(stage: str, problem: Problem, variants: tuple[str, ...]) -> str | None:
    found = nearest(stage, problem, variants)
    return found.variant if found else None


def choice(
    problem: Problem, variant: str, stage: str = "jax-scan", gpu: str = "NVIDIA H200", sm: str = "sm_90"
) -> Choice:
    sizes = problem.inputs, problem.hidden, problem.classes, problem.batch_size
    return Choice(stage, gpu, sm, *sizes, variant, step_us=9.0, default_step_us=10.0, library="jax 0.11.2")


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "choices.json"
    monkeypatch.setattr(choices, "FILE", path)
    monkeypatch.setattr(choices, "devices", lambda: [H200])
    return path


def test_without_a_gpu_or_a_choice_for_it_and_the_stage_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose("jax-scan", LOGISTIC, NAMES) is None
    keep([choice(LOGISTIC, "fast")])
    assert choose("jax-scan", LOGISTIC, NAMES) == "fast"
    assert choose("torch-graph", LOGISTIC, NAMES) is None
    for others in ([RTX_3060], []):
        monkeypatch.setattr(choices, "devices", others.copy)
        assert choose("jax-scan", LOGISTIC, NAMES) is None


def test_another_gpu_of_the_architecture_is_asked_as_if_it_were_a_doubling_away() -> None:
    keep([choice(LOGISTIC, "fast", gpu="NVIDIA H100 PCIe"), choice(Problem(784, 10, batch_size=512), "slow")])
    found = [choose("jax-scan", Problem(784, 10, batch_size=batch), NAMES) for batch in (128, 256, 512)]
    assert found == ["fast", "slow", "slow"]


@pytest.mark.parametrize(
    ("hidden", "batch", "wanted"),
    [((), 128, "fast"), ((32,), 128, "fast"), ((2048,) * 3, 32, "wide"), ((256,), 8192, "slow")],
)
def test_another_network_takes_the_choice_of_the_nearest(hidden: tuple[int, ...], batch: int, wanted: str) -> None:
    keep([choice(WIDE, "wide"), choice(LARGE_BATCH, "slow"), choice(LOGISTIC, "fast")])
    assert choose("jax-scan", Problem(784, 10, hidden, batch_size=batch), NAMES) == wanted


def test_a_network_far_from_all_choices_takes_none() -> None:
    keep([choice(LARGE_BATCH, "slow")])
    for hidden, batch in (((256,), 512), ((), 8192), ((256,) * 5, 8192)):
        assert choose("jax-scan", Problem(784, 10, hidden, batch_size=batch), NAMES) is None


def test_a_new_choice_replaces_the_one_of_the_same_network_and_leaves_the_others(file: Path) -> None:
    keep([choice(WIDE, "wide"), choice(LOGISTIC, "slow"), choice(LOGISTIC, "slow", gpu="NVIDIA A100")])
    keep([choice(LOGISTIC, "fast")])
    rows = [(row.gpu[-4:], len(row.hidden), row.variant) for row in read()]
    assert sorted(rows) == [("A100", 0, "slow"), ("H200", 0, "fast"), ("H200", 3, "wide")]
    assert file.read_text().count("\n") == 3 + 2  # a line each, so that a change is read in a diff
    keep([])
    assert len(read()) == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[{", "Input data was truncated"), ("{}", "Expected `array`, got `object`"), ("\xff", "invalid"),
        ('[{"stage": 3}]', "Expected `str`, got `int` - at `$[0].stage`"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_one_line(file: Path, content: str, said: str) -> None:
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError) as refused:
        choose("jax-scan", LOGISTIC, NAMES)
    (line,) = str(refused.value).splitlines()
    assert line.startswith("stages/references/choices.json: ")
    assert said in line
    assert line.endswith("; delete it, or run python -m tools.tune_references")


def test_a_variant_that_is_no_more_is_named() -> None:
    keep([choice(LOGISTIC, "forgotten")])
    with pytest.raises(UsageError) as refused:
        choose("jax-scan", LOGISTIC, NAMES)
    assert str(refused.value) == (
        "stages/references/choices.json: jax-scan has no variant 'forgotten'; "
        "run python -m tools.tune_references jax-scan"
    )


def test_a_run_builds_by_the_rule_and_says_where_a_search_found_a_faster_variant() -> None:
    def built(problem: Problem) -> tuple[str, str]:
        return variant_for("jax-scan", problem, NAMES, RULE, "slow")

    assert built(LOGISTIC) == ("slow", MAY_GAIN)  # no search is near
    keep([choice(LOGISTIC, "fast"), choice(LARGE_BATCH, "wide")])
    assert built(LOGISTIC) == ("slow", MAY_GAIN)
    assert built(LARGE_BATCH) == ("wide", "wide")
    keep([msgspec.structs.replace(choice(LOGISTIC, "fast"), step_us=9.8)])
    assert built(LOGISTIC) == ("slow", "")


def test_a_run_that_searches_builds_by_the_nearest_search_and_says_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timed, "_searches", False)
    keep([choice(LOGISTIC, "fast")])
    timed.let_search()
    assert variant_for("jax-scan", LOGISTIC, NAMES, RULE, "slow") == ("fast", "fast")
    assert variant_for("torch-graph", LOGISTIC, NAMES, RULE, "slow") == ("slow", "")
    keep([msgspec.structs.replace(choice(LOGISTIC, "fast"), tried={"slow": 0.9})])  # the rule's was as fast
    assert variant_for("jax-scan", LOGISTIC, NAMES, RULE, "slow") == ("slow", "")


def test_a_time_is_compared_with_the_fastest_of_its_own_sitting() -> None:
    seen = msgspec.structs.replace(choice(LOGISTIC, "fast"), tried={"wide": 0.95})
    assert [seen.slower(name, "slow") for name in NAMES] == [pytest.approx(10 / 9), 1.0, pytest.approx(0.95 / 0.9)]
    assert seen.slower("another", "slow") is None


UNKNOWN = 1.2
RULES = {
    **dict.fromkeys(torch_graph.VARIANTS, (torch_graph.RULE, torch_graph.DEFAULT)),
    **dict.fromkeys(("jax-scan", "jax-scan-bf16"), (jax_scan.RULE, jax_scan.DEFAULT)),
}
"""Each stage's rule, and its default variant."""


def loss(rule: Rule, choices: Sequence[Choice]) -> float:
    """How much slower than the fastest variants those of the rule are, as the sum of logarithms."""
    return sum(math.log(slower_by(rule, choice) or UNKNOWN) for choice in choices)


def slower_by(rule: Rule, choice: Choice) -> float | None:
    """The time of the rule's variant as a multiple of the fastest one's; None if it is not known."""
    return choice.slower(rule.variant(choice.problem), RULES[choice.stage][1])


def fitted(rule: Rule, choices: Sequence[Choice]) -> Rule:
    """The rule with the bound between small and large that loses least, in the middle between two searched sizes."""
    sizes = sorted({rule.size_of(choice.problem) for choice in choices})
    middles = [math.isqrt(low * high) for low, high in pairwise(sizes)]
    return min(
        (replace(rule, least=least) for least in [*middles, 2 * sizes[-1]]), key=lambda each: loss(each, choices)
    )


@pytest.mark.parametrize("rule", [torch_graph.RULE, jax_scan.RULE], ids=["torch", "jax"])
def test_the_rules_are_those_fitted_to_the_kept_searches(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "FILE", Path(choices.__file__).with_name("choices.json"))
    searches = [row for row in read() if RULES[row.stage][0] == rule]
    assert loss(rule, searches) == pytest.approx(loss(fitted(rule, searches), searches))
    known = [slower for row in searches if (slower := slower_by(rule, row)) is not None]
    assert len(known) >= 0.6 * len(searches)
    assert sum(slower <= 1 + SLOWER for slower in known) >= 0.6 * len(known)


def test_no_variant_of_a_rule_times_kernels_of_its_own() -> None:
    for variants in torch_graph.VARIANTS.values():
        assert not any(variants[name].compiler for name in (torch_graph.RULE.small, torch_graph.RULE.large))


@pytest.mark.parametrize(
    ("inputs", "hidden", "batch", "by_libraries"),
    [
        (526, (215,), 692, True), (255, (863,), 463, True), (368, (527, 1495, 25, 56), 325, True),
        (784, (1111,), 128, True), (155, (292,), 1421, False), (783, (322,), 283, False),
        (419, (23, 2049, 394, 31), 55, False),
        (784, (1000, 500), 100, False), (212, (1588, 30), 224, False), (784, (2048,), 512, False),
        (784, (), 60_000, False), (783, (), 60_000, True),
    ],
)  # fmt: skip
def test_large_products_of_odd_widths_are_left_to_libraries_in_bfloat16(
    inputs: int, hidden: tuple[int, ...], batch: int, by_libraries: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[jax_scan.Variant | None] = []

    def trainer(*_: object, variant: jax_scan.Variant | None) -> SimpleNamespace:
        built.append(variant)
        return SimpleNamespace(detail="by the usual rule")

    monkeypatch.setattr(jax_scan_bf16, "bfloat16_trainer", trainer)
    problem, named = Problem(inputs, 10, hidden, batch_size=batch), jax_scan.Variant(1)
    said = [jax_scan_bf16.build(problem, TRAIN, variant=variant).detail for variant in (None, named)]
    name = "unroll 4, products by libraries"
    assert said == [name if by_libraries else "by the usual rule", "by the usual rule"]
    assert built == [jax_scan.VARIANTS[name] if by_libraries else None, named]


def test_the_file_of_this_repository_names_variants_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "FILE", Path(choices.__file__).with_name("choices.json"))
    jax = set(jax_scan.VARIANTS)
    known = {stage: set(variants) for stage, variants in torch_graph.VARIANTS.items()}
    known |= {"jax-scan": jax, "jax-scan-bf16": jax}
    for row in read():
        assert row.variant in known[row.stage]
        assert row.step_us <= row.default_step_us


STRONGEST = {"torch-graph", "torch-graph-amp", "jax-scan", "jax-scan-bf16"}
OF_SEVERAL = {"jax-vmap"}  # the faster one on a GPU, where several networks train
ON_SEVERAL = {"torch-ddp", "torch-symmetric", "jax-shard"}  # GPUs
OF_OUR_RUNGS = {"loss-curves", "allocators", "data-path", "six-rungs"}  # studies that claim no lead
STUDIES = sorted((Path(__file__).parents[3] / "experiments").glob("*.toml"))


@pytest.mark.parametrize(
    "path", [path for path in STUDIES if path.stem not in OF_OUR_RUNGS], ids=lambda path: path.stem
)
def test_no_point_of_a_study_is_without_its_strongest_references(path: Path) -> None:
    entries = load_all()
    for point in read_study(path, "", "").points:
        options = options_at(point, entries)
        strongest = ON_SEVERAL if options.gpus > 1 else OF_SEVERAL if "networks" in point.values else STRONGEST
        assert set(options.stages) >= strongest, point.name
