"""The leads of the recorded runs and studies, in a sentence for README and in a table for docs/studies.md."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mode

from reports.facts import numbers
from reports.facts.baselines import overall_winner
from reports.facts.provenance import commit, gpu_name, gpus_name
from reports.facts.study_points import PointLead, StudyResults, overall_winners, point_text
from reports.figures.study_figures import seeds_of
from reports.markdown.readme import Runs
from reports.writers.markdown import cell, code, table

COMMIT_DIGITS = 7


def leads_sentence(runs: Runs, studies: list[StudyResults]) -> str:
    """The largest and the smallest lead of the fastest rung in the newest runs, and the smallest one of a study."""
    newest = {run.problem.network: run for _, run in sorted(runs, key=lambda run: run[1].created)}
    winners = [(network, gpu_name(run), overall_winner(run)) for network, run in newest.items()]
    leads = sorted(((at, gpu, lead) for at, gpu, lead in winners if lead), key=lambda one: -one[2].ratio.times)
    if not leads:
        return ""
    ends = [leads[0], leads[-1]] if len(leads) > 1 else leads
    least = min(
        ((results, winner) for results in _timed(studies) for winner in overall_winners(results)),
        key=lambda pair: pair[1].lead.ratio.times,
        default=None,
    )
    one = ends[0][1] if len({gpu for _, gpu, _ in ends}) == 1 else ""
    shown = [
        f"{lead.ratio.text} in {numbers.precision(lead.stage.precision)} in {at}{'' if one else f' on an {gpu}'}"
        f"{' (GPU time)' * lead.on_gpu_time}"
        for at, gpu, lead in ends
    ]
    waits = " GPU time: without the reference's own waits." * any(lead.on_gpu_time for _, _, lead in ends)
    text = (
        f"**The lead**{one and f', on an {one},'} of the fastest rung over the fastest reference "
        f"(NumPy, PyTorch, JAX) that is at least as exact: {' down to '.join(shown)}.{waits}"
    )
    if least is not None:
        found, at = least
        run, point = found.runs[at.point.name], point_text(at.point)
        where = f"`{found.study.name}` at {point} ({run.problem.network}, batch {run.problem.batch_size})"
        where += f", on an {gpu_name(run)}" * (gpu_name(run) != one)
        text += f" In the [studies](docs/studies.md) it shrinks to {at.text}, in {where}."
    return text


def leads_table(studies: list[StudyResults]) -> str:
    """The fastest rung's lead at every point of the studies, its commit, and its GPU where most others have another."""
    timed = [results for results in _timed(studies) if results.runs]
    gpus = [gpus_name(next(iter(results.runs.values()))) for results in timed]
    here = mode(gpus) if gpus else ""
    lines = [
        (
            f"`{results.study.name}`" + f", {gpu.replace('NVIDIA ', '')}" * (gpu != here),
            cell(point_text(winner.point)),
            code(winner.lead.stage.name),
            code(winner.lead.reference.name),
            _lead(winner),
            commit(results.runs[winner.point.name])[:COMMIT_DIGITS],
        )
        for results, gpu in zip(timed, gpus, strict=True)
        for winner in overall_winners(results)
    ]
    columns = ("Study", "Point", "Fastest rung", "Fastest reference", "Lead", "Commit")
    return table(columns, lines, right=[False] * 4 + [True, False]) if lines else ""


def _timed(studies: Sequence[StudyResults]) -> list[StudyResults]:
    """All but those of curves, which time short runs only."""
    return [results for results in studies if not seeds_of(results)]


def _lead(winner: PointLead) -> str:
    return cell(winner.text + (f" ({numbers.listing(winner.missing)})" if winner.missing else ""))
