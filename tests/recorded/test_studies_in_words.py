"""What docs/studies.md says of the recorded studies, recomputed as `test_leads` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.recorded.test_leads import ROOT, fastest_rung, host_us, lead, named, newest, plain, stages

PAGE = " ".join((ROOT / "docs" / "studies.md").read_text(encoding="utf-8").split())


def at(study: str, point: str) -> list[dict[str, Any]]:
    return stages(newest(study) / point)


def us(study: str, point: str, stage: str) -> float:
    return host_us(named(at(study, point), stage))


def speedup(study: str, point: str, base: str, own: str) -> float:
    return us(study, point, base) / us(study, point, own)


def points(study: str) -> list[Path]:
    return [file.parent for file in newest(study).glob("*/results.json.gz")]


def sizes() -> list[str]:
    leads = {int(of.name.split("-")[1]): lead(fastest_rung(stages(of)), stages(of)) for of in points("hidden-size")}
    by_size = {size: found[0] for size, found in leads.items() if found}
    best = max(by_size, key=lambda size: by_size[size])
    narrow = [f"the lead is largest up to {size} units" for size in (128, 256, 512) if best <= size]
    above = [size for size in sorted(by_size) if all(by_size[wider] < 2.4 for wider in by_size if wider >= size)]
    return [*narrow[:1], *[f"and below 2.4x from {size:,} on" for size in above if size >= 1024][:1]]


def batches() -> list[str]:
    won = {int(of.name.split("-")[2]): fastest_rung(stages(of))["name"] for of in points("batch-size")}
    assert {won[size].removesuffix("-fp16") for size in won if size <= 128} == {"cluster-ahead"}
    assert won[512].startswith("large-batch-early")
    assert all(won[size].startswith("large-batch") for size in won if size >= 2048)
    return [f"At 512 `torch-graph` took {us('batch-size', 'batch-size-512', 'torch-graph'):.0f} us"]


def depths() -> list[str]:
    names = "grid-messages-fp16", "jax-scan-bf16", "cuda-graph"
    one, two, three = ((us("depth", "depth-8", name) - us("depth", "depth-4", name)) / 4 for name in names)
    return [f"adds {one:.2g} us to `{names[0]}`, {two:.0f} to `{names[1]}` and {three:.0f} to `{names[2]}`"]


def allocators() -> list[str]:
    wide = (of.name for of in points("allocators") if int(of.name.split("-")[1]) >= 512)
    times = sorted(speedup("allocators", point, "alloc-cudamalloc", "alloc-pool") for point in wide)
    return [f"{times[0]:.1f} to {times[-1]:.1f} times as long as a pool does"]


def copies() -> list[str]:
    wide = named(at("data-path", "batch-size-2048.hidden-4096"), "pinned-overlap")["profiles"][0]["copies"]
    (copied,) = [copy for copy in wide if copy["direction"] == "host to device"]
    gain = speedup("data-path", "batch-size-2048.hidden-256", "pinned", "pinned-overlap")
    return [
        f"hides {copied['hidden_us_per_step'] / copied['us_per_step']:.0%}",
        f"At 2,048 and 256 units a step gains {gain:.2f}x",
    ]


def fleets() -> list[str]:
    many = "depth-0.networks-64"
    best = fastest_rung(at("fleet", many))["name"]
    one = us("fleet", "depth-0.networks-1", "persistent-cluster")
    return [
        f"sixty-four softmax regressions take {us('fleet', many, best) / one:.1f} times as long as one",
        f"`vmap` takes {speedup('fleet', many, 'jax-vmap', best):.1f} times as long as they",
    ]


def joules() -> list[str]:
    of = at("energy", "hidden-none.validate-every-0")
    names = "persistent-cluster", "torch-graph"
    ours, theirs = (named(of, name)["processes"][0]["energy"]["joules"] for name in names)
    return [f"{ours:.2f} J with `{names[0]}`, {theirs:.2f} with `{names[1]}`"]


def curves() -> list[str]:
    rows = [stage for of in points("loss-curves") for stage in plain(of)["stages"] if stage["status"] != "skipped"]
    assert {stage["status"] for stage in rows} == {"passed"}
    return [f"all {len({stage['name'] for stage in rows})} stages stay within"]


def gpus() -> list[str]:
    small, large = "batch-size-4096", "batch-size-32768"
    first, second = (speedup("two-gpus", point, "large-batch", "ddp-halves") for point in (small, large))
    more, less = (1 - 1 / speedup("two-gpus", point, "ddp-step", "ddp-peer") for point in (small, large))
    return [
        f"gains {first:.2f}x over `large-batch` on one GPU at 4,096 images, and {second:.2f}x at 32,768",
        f"NCCL costs {100 * more:.0f} to {100 * less:.0f}% of a step more",
    ]


@pytest.mark.parametrize("words", [sizes, batches, depths, allocators, copies, fleets, joules, curves, gpus])
def test_the_words_on_the_studies_are_what_was_recorded(words: Any) -> None:
    said = words()
    assert said
    assert [one for one in said if one not in PAGE] == []
