"""Whether a rung of a ladder over a user's model became faster or slower between two runs."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ladder.records.statistics import ratio_interval
from ladder.records.torch_run import RIGHT, TorchResults
from reports.facts.provenance import part
from reports.facts.torch_rows import assumed_spread, machine
from reports.facts.two_runs import THRESHOLD, CannotCompareError, Comparison, StageVerdict, judged


def compare_torch_runs(
    base: TorchResults, new: TorchResults, names: tuple[str, str], threshold: float = THRESHOLD, *, strict: bool = False
) -> Comparison:
    """The verdicts on all rungs of both runs; raises CannotCompareError where the step is not the same work."""
    for what in ("parameters", "batch_size", "optimizer"):
        one, other = getattr(base.model, what), getattr(new.model, what)
        if one != other:
            raise CannotCompareError(
                f"{names[0]} and {names[1]}: {what.replace('_', ' ')} {one} and {other}; name runs of one training"
            )
    order = dict.fromkeys(rung.name for run in (base, new) for rung in run.rungs if rung.group != "left out")
    verdicts = [_verdict(name, base, new, threshold) for name in order]
    return Comparison.of(verdicts, names, threshold, list(_differences(base, new)), strict=strict, what="rung")


def _verdict(name: str, base_run: TorchResults, new_run: TorchResults, threshold: float) -> StageVerdict:
    base, new = base_run.rung(name), new_run.rung(name)
    times, new_times = ([one.step_us for one in rung.processes] if rung else [] for rung in (base, new))
    was, now = ("absent" if rung is None else rung.status for rung in (base, new))
    had_time = base is not None and base.is_timed
    known = StageVerdict(
        name,
        base_us=base.step_us if base is not None else None,
        new_us=new.step_us if new is not None else None,
        base_processes=len(times),
        new_processes=len(new_times),
        regression=had_time and new is not None and new.status not in RIGHT,
        lost="absent" if had_time and new is None else "",
        remarks=[f"{was} in the first run, {now} in the new run"] * (was != now),
    )
    if base is None or new is None or not base.is_timed or not new.is_timed:
        return known if known.remarks else replace(known, remarks=[f"{was} in both runs"])
    spread = max(assumed_spread(base, base_run), assumed_spread(new, new_run))
    return judged(known, ratio_interval(times, new_times, spread=spread), threshold)


def _differences(base: TorchResults, new: TorchResults) -> Iterator[str]:
    version, new_version = (str(part(run.environment, "libraries").get("torch") or "unknown") for run in (base, new))
    for what, one, other in (
        ("machine", machine(base), machine(new)),
        ("PyTorch", version, new_version),
        ("model file", base.model.sha256[:10], new.model.sha256[:10]),
        ("data", base.model.data, new.model.data),
    ):
        if one != other:
            yield f"The {what} differs: {one} in the base, {other} in the new run."
