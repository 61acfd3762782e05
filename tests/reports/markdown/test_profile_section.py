from __future__ import annotations

import msgspec
import pytest

from reports.markdown.profile_section import profile_blocks, stage_profile_blocks
from reports.markdown.run_report import report
from tests.reports import sample

NAMES = ["timelines.svg", "waterfall.svg", "timeline-naive.svg"]


def rows(block: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]


def stage_blocks(name: str) -> list[str]:
    stage = next(stage for stage in sample.results().stages if stage.name == name)
    return list(stage_profile_blocks(stage))


def test_every_profiled_stage_has_its_parts_which_add_up() -> None:
    header, _, *lines = rows(list(profile_blocks(sample.results(), NAMES))[1])
    assert header[1:7] == ["Kernels", "Copies", "Between queued kernels", "Host launching", "Host waiting", "Sum"]
    assert lines[0] == ["`naive`", "38.0", "1.0", "6.0", "20.0", "20.0", "85.0", "85.5", "+10%"]
    assert len(lines) == 6
    for line in lines:
        assert sum(map(float, line[1:6])) == pytest.approx(float(line[6]))


def test_scaled_down_work_shows_the_seen_time() -> None:
    naive = next(stage for stage in sample.results().stages if stage.name == "naive")
    profiles = [
        msgspec.structs.replace(one, seen=msgspec.structs.replace(one.seen, kernels_us=40.0)) for one in naive.profiles
    ]
    table = rows(list(profile_blocks(sample.replace_stage(sample.results(), "naive", profiles=profiles), NAMES))[1])
    assert table[2][1] == "38.0 (seen 40.0)"


def test_every_change_has_its_parts_and_a_rest() -> None:
    blocks = list(profile_blocks(sample.results(), NAMES))
    header, _, first, *_ = rows(blocks[blocks.index("### What each rung changed") + 1])
    assert header[:4] == ["Rung", "From", "Timed", "Products"]
    assert first[:3] == ["`async`", "`naive`", "-42.7"]
    assert sum(map(float, filter(None, first[3:]))) == pytest.approx(float(first[2]), abs=0.3)  # as rounded


def test_every_change_is_compared_with_the_profiles() -> None:
    blocks = list(profile_blocks(sample.results(), NAMES))
    table = rows(blocks[blocks.index("### What the profiles saw of each change") + 1])
    assert table[2] == ["`async`", "`naive`", "-42.7", "-46.6", "109%*", "-3.0", "7%", "+10%"]
    assert blocks[-1].startswith(
        "Of 3 differences, the profiles saw 0 to within 5% of the timed difference, but not async"
    )


def test_shares_of_single_rounds_stand_beside_the_mean() -> None:
    run = sample.results()
    run = sample.with_processes(run, "naive", [85.0, 86.0], [95.0, 92.0])
    run = sample.with_processes(run, "async", [42.0, 43.0], [45.0, 50.0])
    assert "| 109% (98% to 117%)* |" in "\n".join(profile_blocks(run, NAMES))


def test_a_change_within_the_noise_says_so() -> None:
    run = sample.results()
    naive = next(stage for stage in run.stages if stage.name == "naive")
    blocks = "\n".join(profile_blocks(sample.replace_stage(run, "async", timing=naive.timing), NAMES))
    assert "| within noise |" in blocks
    assert "1 of 3 differences is within the noise. Of the other 2, " in blocks


def test_only_figures_that_were_drawn_are_linked() -> None:
    text = "\n".join(profile_blocks(sample.results(), NAMES))
    assert "`figures/timelines.svg`" in text
    assert "`figures/timeline-STAGE.svg`" in text
    assert ".svg" not in "\n".join(profile_blocks(sample.results(), []))


def test_a_run_without_profiles_says_nothing_of_them() -> None:
    assert list(profile_blocks(sample.unprofiled_results(), NAMES)) == []
    text = report(sample.unprofiled_results(), NAMES)
    assert "time goes" not in text
    assert "| Host |" not in text


def test_without_a_profiled_neighbour_there_are_parts_and_no_changes() -> None:
    run = sample.results()
    for name in ("async", "bf16-gemm"):
        run = sample.replace_stage(run, name, profiles=[])
    text = "\n".join(profile_blocks(run, NAMES))
    assert "Where a step's time goes" in text
    assert "What each rung changed" not in text


def test_a_stage_shows_its_step_kernel_by_kernel() -> None:
    kernels, host, seen = stage_blocks("naive")
    assert rows(kernels)[2] == ["1", "`gemm_naive`", "gemm", "23.5", "32", "8 x 256", "62.5%", "0.4 MB"]
    assert len(rows(kernels)) == 2 + 8
    assert "| Synchronisations | 468 an epoch" in host
    assert seen.endswith("busy 38.5 / 39.0 us (1.3%).")


def test_a_step_of_many_kernels_is_cut_and_says_so() -> None:
    kernels, more, _, _ = stage_blocks("torch-eager")
    assert rows(kernels)[0][0] == "Per step"
    assert rows(kernels)[2][6:] == ["-", "-"]
    assert len(rows(kernels)) == 2 + 8
    assert more == "and 15 more."


def test_a_stage_without_a_profile_has_no_blocks() -> None:
    assert stage_blocks("torch-amp") == stage_blocks("cuda-graph") == []
