"""Whether a second process of a reference ever moved a verdict: `python -m tools.second_process`, from all records.

A verdict is what a report says of a timed rung beside a reference that counts for it: faster, slower or within noise.
It is taken by both processes of the reference, then by its first one, and by its second one. The lead of the fastest
rung of each class is taken likewise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from ladder.records.program import ROOT
from ladder.records.run import Results, StageResult, Timing, all_results, load_once
from reports.facts.baselines import host_times, references, rivals, winners
from reports.facts.ratios import Ratio, ratio_of
from reports.facts.times import step_us


def alone(stage: StageResult, which: int) -> StageResult:
    """The stage by one of its processes."""
    timing, processes = stage.timing, [stage.processes[which]]
    assert timing is not None
    shortened = timing.shortened
    kept = Timing.of(processes, epochs=timing.epochs, steps_per_epoch=timing.steps_per_epoch, shortened=shortened)
    return msgspec.structs.replace(stage, processes=processes, timing=kept)


def verdict(ratio: Ratio) -> str:
    """What a report says of it."""
    return "within noise" if ratio.is_noise else "faster" if ratio.times > 1 else "slower"


def repeated(results: Results) -> Iterator[StageResult]:
    """The references with several processes in their time."""
    return (each for each in references(results) if step_us(each) is not None and len(each.processes) > 1)


def main() -> None:
    """Print a row for each reference and each kind of machine, and every verdict that moved."""
    counted: dict[tuple[str, str], list[float]] = defaultdict(list)
    moved: dict[tuple[str, str], list[str]] = defaultdict(list)
    verdicts: dict[tuple[str, str], int] = defaultdict(int)
    changes, leads, largest = list[str](), 0, 1.0
    for file in sorted(all_results(ROOT / "results" / "reference", "**")):
        results, place = load_once(file), file.parent.relative_to(ROOT / "results" / "reference")
        for reference in repeated(results):
            kind = reference.name, str(reference.device)
            counted[kind].append(host_times(alone(reference, 0)).median_us / host_times(reference).median_us)
            timed = [each for each in results.stages if each.group != "reference" and step_us(each) is not None]
            for rung in [each for each in timed if reference in rivals(each, references(results))]:
                ratio = ratio_of(host_times(reference), host_times(rung))
                both = verdict(ratio)
                verdicts[kind] += 1
                for which in range(2):
                    single = verdict(ratio_of(host_times(alone(reference, which)), host_times(rung)))
                    if single != both:
                        largest = max(largest, ratio.times, 1 / ratio.times)
                        moved[kind].append(f"{place}, {rung.name}: {both}, by process {which + 1} {single}")
        stages = [alone(each, 0) if each in [*repeated(results)] else each for each in results.stages]
        for lead, once in zip(winners(results), winners(msgspec.structs.replace(results, stages=stages)), strict=True):
            leads += 1
            if lead.reference.name != once.reference.name or verdict(lead.ratio) != verdict(once.ratio):
                changes.append(
                    f"{place}: over {lead.reference.name} {lead.text}, once {once.reference.name} {once.text}"
                )
    print("reference            on   recordings  farthest from the median of both  verdicts  moved")
    for kind, ratios in sorted(counted.items(), key=lambda each: each[0][::-1]):
        far = max(max(ratio, 1 / ratio) for ratio in ratios) - 1
        print(f"{kind[0]:20} {kind[1]:4} {len(ratios):10} {far:33.1%} {verdicts[kind]:9} {len(moved[kind]):6}")
        for line in moved[kind]:
            print(f"    {line}")
    print(f"a verdict moved where one was {largest:.2f} times as fast as the other, or less")
    print(
        f"leads of the fastest rung of a class by one process of each reference: {len(changes)} of {leads} say another"
    )
    for line in changes:
        print(f"    {line}")


if __name__ == "__main__":
    main()
