"""The recorded ladders over PyTorch models: a table for the documents, and the numbers of the climb's chapter."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from ladder.records.program import ROOT
from ladder.records.statistics import VERDICT_CONFIDENCE
from ladder.records.torch_run import FILE, ModelRecord, TorchResults, load
from reports.facts import numbers
from reports.facts.grouped import grouped
from reports.facts.torch_rows import EAGER, FUSED, TorchRow, device, origin, ratio, torch_rows, torch_verdict
from reports.writers.markdown import code, table

WORKERS = "workers"
SHOWN = ("eager", "resident", FUSED, "compile", "reduce-overhead", "step-graph", "compiled-graph")
"""The rungs whose times the table has; on the front page with those between `eager` and `resident`."""
SHOWN_IN_FRONT = ("eager", "no-item", WORKERS, *SHOWN[1:])
EXAMPLE = "tabular"
MARKS = {"*": "within noise of its parent", "†": "other work disturbed a process"}  # behind a time
FRONT = (EXAMPLE, "cnn")
ORDER = ("mlp", "tabular", "cnn", "ppo", "chars")


def own_models(reference: Path) -> dict[str, tuple[Path, TorchResults]]:
    """The recorded runs by the names of their models, with their folders; of several GPUs the last folder's."""
    found = {path.parent.name: path.parent for path in sorted(reference.glob(f"*/torch/*/{FILE}"))}
    names = sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    return {name: (found[name], load(found[name])) for name in names}


def own_models_block(reference: Path, page: Path) -> str:
    """A row per recorded model: times of the rungs, and what the fastest one as exact as eager mode gains."""
    models = own_models(reference)
    if not models:
        return ""
    lines = [_line(folder, results, page) for folder, results in models.values()]
    header = ["Model", *(f"`{name}`" for name in SHOWN), "As exact: over eager", "over fused", "Any precision"]
    right = [False] + [True] * (len(header) - 1)
    recorded = origins((name, results) for name, (_, results) in models.items())
    told = "Times are in us per step, and speedups compare single steps, without preparation."
    each = "\n".join(_described(name, results.model) for name, (_, results) in models.items())
    return f"{each}\n\n{recorded}. {told}\n\n{table(header, lines, right=right)}"


def _described(name: str, model: ModelRecord) -> str:
    """What a model is, by the first line of its example, and its size: one of a list."""
    file = ROOT / "examples" / "torch" / model.file
    what = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0].rstrip(".")
    size = f"{numbers.count(model.parameters, 'parameter')}, batch {model.batch_size:,}"
    told = [f"{what[:1].lower()}{what[1:]}", *([] if model.optimizer in what else [model.optimizer]), size]
    return f"- {code(name)}: {'; '.join(told)}."


def own_model_block(reference: Path, page: Path) -> str:
    """The main rungs of the two recorded models that the front page shows; empty without the first's record."""
    models = own_models(reference)
    if EXAMPLE not in models:
        return ""
    named = [name for name in FRONT if name in models]
    runs = [models[name][1] for name in named]
    by_name = [{row.name: row for row in torch_rows(run)} for run in runs]
    lines = [
        [code(name), _code(first.rung.parent), first.rung.words, *(_marked(rows.get(name)) for rows in by_name)]
        for name in SHOWN_IN_FRONT
        if (first := by_name[0].get(name))
    ]
    header = ["Rung", "Parent", "What changes", *(f"{name}, us/step" for name in named)]
    shown = table(header, lines, right=[False] * 3 + [True] * len(named))
    models_told = numbers.listing(
        f"{_link(folder, page)} ({_kind(results.model)}, batch {results.model.batch_size:,})"
        for folder, results in map(models.__getitem__, named)
    )
    inexact = dict.fromkeys(
        code(name) for rows in by_name for name in SHOWN if name in rows and not rows[name].is_exact
    )
    less = f"Less exact than `eager`: {numbers.listing(inexact)}." if inexact else "All pass the check against float64."
    there = "".join(text for line in lines for text in line[3:])
    marks = " ".join(f"{code(mark)}: {words}." for mark, words in MARKS.items() if mark in there)
    gains = [
        [f"a step, over {code(base)}", *(_gain(base, rows, run) for rows, run in zip(by_name, runs, strict=True))]
        for base in (EAGER, FUSED)
    ]
    gains.append([f"a training by the recipe, over {code(EAGER)}", *map(_whole_gain, runs)])
    speedups = table([f"Speedup of the fastest ({VERDICT_CONFIDENCE:.1%} interval)", *named], gains)
    return f"{models_told}, on {device(models[EXAMPLE][1])}:\n\n{shown}\n\n{marks} {less}\n\n{speedups}"


def _code(name: str | None) -> str:
    return code(name) if name else ""


def _kind(model: ModelRecord) -> str:
    """What tells one model from another: `AdamW, dropout`."""
    parts = {"convolutions": model.has_convolution, "dropout": model.has_dropout}
    return ", ".join([model.optimizer, *(name for name, is_there in parts.items() if is_there)])


def _marked(row: TorchRow | None) -> str:
    """Its time, with a mark."""
    if row is None:
        return numbers.MISSING
    noise, disturbed = MARKS
    is_noise = row.versus_parent is not None and row.versus_parent.is_noise
    is_disturbed = any(process.measured.disturbed for process in row.rung.processes)
    return f"{numbers.microseconds(row.rung.step_us)}{noise * is_noise}{disturbed * is_disturbed}"


def _gain(base: str, rows: dict[str, TorchRow], run: TorchResults) -> str:
    """What a step of the fastest rung as exact as eager mode gains over another rung's."""
    best, other = _best(rows, exact=True), rows.get(base)
    gain = ratio(other.rung, best.rung, run) if best and other else None
    return gain.text if gain else numbers.MISSING


def _whole_gain(run: TorchResults) -> str:
    """What the recipe gains over a whole training."""
    verdict = torch_verdict(run)
    if verdict is None or verdict.versus_eager is None:
        return numbers.MISSING
    return f"{verdict.versus_eager.text} in {numbers.count(verdict.epochs, 'epoch')}"


def front_model(reference: Path) -> TorchResults | None:
    """The recorded run of the model whose picture the front page shows; None without its record."""
    return own_models(reference).get(EXAMPLE, (None, None))[1]


def origins(models: Iterable[tuple[str, TorchResults]]) -> str:
    """Where models were recorded, once for those of one origin."""
    named = grouped((origin(results), code(name)) for name, results in models)
    if len(named) == 1:
        return next(iter(named))
    return "; ".join(f"{numbers.listing(names)}: {place}" for place, names in named.items())


def _link(folder: Path, page: Path) -> str:
    return f"[{folder.name}]({PurePosixPath(os.path.relpath(folder, page.parent)).as_posix()}/report.md)"


def _line(folder: Path, results: TorchResults, page: Path) -> list[str]:
    rows = {row.name: row for row in torch_rows(results)}
    link = _link(folder, page)
    times = [numbers.microseconds(row.rung.step_us) if (row := rows.get(name)) else numbers.MISSING for name in SHOWN]
    exact, fastest = _best(rows, exact=True), _best(rows, exact=False)
    fused = rows.get(FUSED)
    gains = [numbers.MISSING] * 3
    if exact is not None and exact.versus_eager is not None and exact.rung.step_us is not None:
        gains[0] = f"{numbers.ratio(exact.versus_eager.times)} {code(exact.name)}"
        if fused is not None and fused.rung.step_us is not None:
            gains[1] = numbers.ratio(fused.rung.step_us / exact.rung.step_us)
    if fastest is not None and fastest is not exact and fastest.versus_eager is not None:
        gains[2] = f"{numbers.ratio(fastest.versus_eager.times)} {code(fastest.name)}"
    return [link, *times, *gains]


def _best(rows: dict[str, TorchRow], *, exact: bool) -> TorchRow | None:
    """The ladder's fastest timed row, as exact as eager or of any."""
    ladder = (row for row in rows.values() if row.rung.is_timed and row.rung.group == "ladder")
    fitting = [row for row in ladder if row.is_exact or not exact]
    return min(fitting, key=lambda row: row.rung.step_us or 0.0, default=None)


class OwnModel:
    """What the chapter says of one recorded model; numbers can be compared, and are shown rounded."""

    def __init__(self, results: TorchResults, shown: Any) -> None:
        """`shown` makes a number with its text."""
        self.results = results
        rows = {row.name: row for row in torch_rows(results)}
        timed = {name: row.rung for name, row in rows.items() if row.rung.step_us is not None}
        self.us = {name: shown(rung.step_us, numbers.microseconds(rung.step_us)) for name, rung in timed.items()}
        first_s = {name: rows[name].first_step_s for name in timed}
        self.first_s = {name: shown(value, numbers.seconds(value)) for name, value in first_s.items()}
        best = _best(rows, exact=True)
        assert best is not None
        self.best = best.name
        self.over = {
            base: shown(gain, numbers.ratio(gain))
            for base in timed
            for gain in [(timed[base].step_us or 0.0) / (best.rung.step_us or 1.0)]
        }
        verdict = torch_verdict(results)
        assert verdict is not None
        self.recipe, self.epochs = verdict.chosen.name, verdict.epochs
        pays = results.pays_after(timed["compiled-graph"], timed["step-graph"]) if "compiled-graph" in timed else None
        self.compiling_pays = shown(pays, f"{float(f'{pays:.2g}'):,.0f}") if pays else None
        self.steps_per_epoch = results.model.steps_per_epoch
