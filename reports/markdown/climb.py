"""The chapters of docs/climb/, and the essay beside that folder, filled in from the recorded runs.

A chapter is a Jinja template in `docs/climb/templates/`, whose numbers are placeholders: `{{ us["cuda-graph"] }}`. The
sentences that depend on a number state it as well: `{{ holds(us["cuda-graph"] < us["async"]) }}` prints nothing, and
refuses to write a chapter that a new recording contradicts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from ladder.records.limits_record import DesignFloor
from ladder.records.run import Results, all_results, load
from reports.explorer.code import matched
from reports.facts import numbers
from reports.facts.baselines import host_times
from reports.facts.predictions import judge
from reports.facts.profiles import kernel_names
from reports.facts.provenance import recorded
from reports.facts.ratios import Ratio
from reports.facts.run_table import heading, title_of
from reports.facts.stage_facts import StageFacts
from reports.facts.time_breakdown import PARTS, Change, Profiled
from reports.figures import waterfall
from reports.figures.timeline_figure import on_one_clock, shown
from reports.markdown.own_models import OwnModel, origins, own_models
from reports.report_error import ReportError
from reports.screens.rung import ALIKE
from reports.writers.markdown import code, table

TEMPLATES = "templates"
FIGURES = "figures"
TIMELINES = ("naive", "async", "cublas", "cuda-graph")  # shown by chapters, each with the rung that it climbs from
WAYS = (("cuda-graph", "fused-bias"),)  # from the first rung's time to the last one's, part by part
ROOT = Path(__file__).parents[2]  # of the files whose code chapters show
ENDING = ".md.j2"
ESSAY = "essay.md.j2"  # beside the folder of the chapters
EPOCH = "epoch from zeros, parameters"  # the check whose error chapters show
FOLDER = "h100-80gb-hbm3"  # of the recorded runs that the chapters tell of
LANGUAGES = "languages"  # the folder of the runs in several languages, beside the reference's
LANGUAGES_ON = "h200"
STUDIES = {"fleet": "h200", "six-rungs": FOLDER}  # whose points chapters tell of, and the folder of each
MAIN = "logistic"  # the run whose numbers need no name
GENERATED = "<!-- Written by `python run_ladder.py readme` from {}. Do not edit. -->\n\n"


class Shown(float):
    """A number that a chapter can compare and calculate with, and that is shown rounded."""

    text: str

    def __new__(cls, value: float, text: str) -> Shown:
        """A number with its text."""
        shown = super().__new__(cls, value)
        shown.text = text
        return shown

    def __str__(self) -> str:
        """The rounded number."""
        return self.text


class Named:
    """Values by name, each made when a chapter asks for it; a name without a value is an error."""

    def __init__(self, what: str, make: Callable[[str], Any]) -> None:
        self._what, self._make = what, make

    def __getitem__(self, name: str) -> Any:
        """The value of a name; raises LookupError without one."""
        value = self._make(name)
        if value is None:
            raise LookupError(f"the recorded run has no {self._what} of {name}")
        return value


Fact = Callable[[StageFacts], Any]  # None where the run does not know it


def _shown(value: float | None, text: Callable[[float], str]) -> Shown | None:
    return Shown(value, text(value)) if value is not None else None


def _of_gain(told: Callable[[Ratio], Any]) -> Fact:
    """Something of the speedup over the stage that one climbs from."""
    return lambda rung: told(rung.versus_parent) if rung.versus_parent is not None else None


def _range(rung: StageFacts) -> str | None:
    """The speedup from the parent's fastest process over the rung's slowest one to the reverse."""
    if rung.parent is None or rung.versus_parent is None:
        return None
    (least, most), (fastest, slowest) = (host_times(one).ends_us for one in (rung.parent, rung.stage))
    return f"{numbers.ratio(least / slowest)} to {numbers.ratio(most / fastest)}"


def _of_profile(field: str) -> Fact:
    return lambda rung: _shown(getattr(_profiled(rung).profile, field), numbers.per_step)


def _of_prediction(field: str) -> Fact:
    return lambda rung: (
        getattr(judgement, field) if (judgement := judge(rung.stage, rung.results, on_like_chip=True)) else None
    )


def _of_design(value: Callable[[DesignFloor], float], text: Callable[[float], str]) -> Fact:
    return lambda rung: _shown(value(of.design), text) if (of := rung.stage.bounds) and of.design else None


def _profiled(rung: StageFacts) -> Profiled:
    if rung.profiled is None:
        raise LookupError(f"the recorded run has no profile of {rung.name}")
    return rung.profiled


def _error(rung: StageFacts) -> Shown | None:
    errors = [check.error for check in rung.stage.checks if check.what == EPOCH]
    return _shown(errors[0], numbers.error) if errors else None


def _lead(rung: StageFacts) -> dict[str, Any] | None:
    best = rung.lead
    return {"times": Shown(best.ratio.times, best.ratio.text), "over": best.reference.name} if best else None


def _parts(rung: StageFacts) -> dict[str, Shown]:
    one = _profiled(rung)
    return {part: Shown(us, numbers.aligned(us, one.step_us)) for part, us in (one.detailed_us | one.parts_us).items()}


def _moved(rung: StageFacts) -> dict[str, Shown] | None:
    change = rung.change
    if change is None:
        return None
    parts = change.parts_us | change.detailed_us
    return {part: Shown(us, numbers.change(us, change.slower_us)) for part, us in parts.items()}


def _kernels(rung: StageFacts) -> list[dict[str, Any]]:
    kernels, limits = _profiled(rung).profile.kernels, rung.results.limits
    names = kernel_names([kernel.name for kernel in kernels])
    return [
        {
            "name": names[kernel.name],
            "us": Shown(kernel.us_per_step, numbers.microseconds(kernel.us_per_step)),
            "blocks": kernel.blocks,
            "idle": max((limits.chip.multiprocessors if limits else 0) - kernel.blocks, 0),
        }
        for kernel in kernels
    ]


FACTS: dict[str, tuple[str, Fact]] = {  # what chapters say of a rung, with the word for what a run may lack
    "us": ("time", lambda rung: _shown(rung.step_us, numbers.microseconds)),
    "ratio": ("ratio", _of_gain(lambda gain: Shown(gain.times, gain.text))),
    "range": ("ratio", _range),
    "processes": ("stage", lambda rung: len(rung.stage.processes)),
    "noise": ("ratio", _of_gain(lambda gain: gain.is_noise)),
    "error": ("check", _error),
    "lead": ("lead", _lead),
    "predicted": ("prediction", _of_prediction("predicted")),
    "verdict": ("verdict", _of_prediction("text")),
    "hit": ("verdict", _of_prediction("hit")),
    "parts": ("profile", _parts),
    "moved": ("change", _moved),
    "launches": ("profile", _of_profile("launches_per_step")),
    "kernels": ("profile", _of_profile("kernels_per_step")),
    "kernel": ("profile", _kernels),
    "floor": ("floor", lambda rung: _shown(rung.floor_us, numbers.microseconds)),
    "traffic": ("traffic", _of_design(lambda design: design.bytes, numbers.size)),
}


class ChapterRun(dict[str, Any]):
    """What chapters say of one recorded run, by name: of the run itself, and of its rungs."""

    def __init__(self, results: Results, folder: str = MAIN) -> None:
        self.results = results
        limits = results.limits
        super().__init__({
            "folder": folder,
            "heading": heading(results),
            "network": results.problem.network,
            "recorded": recorded(results),
            "multiprocessors": limits.chip.multiprocessors if limits else None,
            "l2_mb": round(limits.chip.l2_bytes / 1e6) if limits else None,
            "limit": Named("limit", partial(self._limit, "median")),
            "least": Named("limit", partial(self._limit, "min")),
            "arithmetic": Named("floor", self._arithmetic),
            "less": self.less, "table": self.table, "kernel_table": self.kernel_table, "page": self.page,
        })  # fmt: skip
        for name, (what, fact) in FACTS.items():
            self[name] = Named(what, partial(self._of, fact))

    def less(self, name: str, than: str) -> Shown:
        """By how many microseconds per step one stage is shorter than another, in that one's decimals."""
        difference = self["us"][than] - self["us"][name]
        return Shown(difference, numbers.aligned(abs(difference), float(self["us"][than])))

    def table(self, *names: str) -> str:
        """Stages side by side: their time, its parts and their number of kernels."""
        rows = [
            ("**us/step**", [f"**{self['us'][name]}**" for name in names]),
            *((part, [str(self["parts"][name][part]) for name in names]) for part in PARTS),
            ("launches per step", [str(self["launches"][name]) for name in names]),
            ("kernels per step", [str(self["kernels"][name]) for name in names]),
        ]
        return table(
            ("", *map(code, names)), [(row, *cells) for row, cells in rows], right=[False] + [True] * len(names)
        )

    def kernel_table(self, *names: str) -> str:
        """The kernels of a step of each stage in their order, and how their sum differs from the part *kernels*."""
        kernels = {name: self["kernel"][name] for name in names}
        lines = [
            (code(name), code(one["name"]), str(one["us"]), str(one["blocks"]))
            for name in names
            for one in kernels[name]
        ]
        sums = [f"{numbers.microseconds(sum(one['us'] for one in kernels[name]))} us" for name in names]
        fits = [f"{self['parts'][name]['kernels']}" for name in names]
        note = (
            f"As the profiler saw them: {numbers.listing(sums)} in all, where the part *kernels*, scaled to the time "
            f"without the tool, has {numbers.listing(fits)}."
        )
        return f"{table(('Rung', 'Kernel', 'us/step', 'Blocks'), lines, right=[False, False, True, True])}\n\n{note}"

    def timeline(self, name: str) -> str:
        """The figure of three steps of a stage, below those of the one that it climbs from, as SVG text."""
        rung = self._rung(name)
        both = [stage for stage in (rung.parent, rung.stage) if stage is not None]
        return on_one_clock([shown(stage) for stage in both], self.results).svg()

    def way(self, first: str, last: str) -> str:
        """The figure of what each rung on the way from one stage to another changed, as SVG text."""
        way: list[Change] = []
        name = last
        while name != first:
            rung = self._rung(name)
            if rung.change is None:
                raise LookupError(f"the recorded run has no way from {first} to {last}: it stops at {name}")
            way.insert(0, rung.change)
            name = rung.stage.below or ""
        return waterfall.drawn(self.results, way).svg()

    def page(self, name: str) -> str:
        """A link to a stage, or to the table that has it, in the run's report; in the site to its place or its page."""
        rung = self._rung(name)
        heading, title = (ALIKE, f' "{name}"') if rung.is_as_its_parent else (f"{name} {title_of(rung.stage)}", "")
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        return f"[its page](../../results/reference/{FOLDER}/{self['folder']}/report.md#{anchor}{title})"

    def _rung(self, name: str) -> StageFacts:
        stage = self.results.stage(name)
        if stage is None:
            raise LookupError(f"the recorded run has no stage {name}")
        return StageFacts(stage, self.results)

    def _of(self, fact: Fact, name: str) -> Any:
        return fact(self._rung(name))

    def _arithmetic(self, name: str) -> Any:
        """The time of a step's products at the measured rate of float32."""
        rate = float(self["limit"]["gemm_float32"])
        return _of_design(lambda design: design.flops / rate / 1e6, numbers.microseconds)(self._rung(name))

    def _limit(self, end: Literal["median", "min"], name: str) -> Shown | None:
        limit = self.results.limits.get(name) if self.results.limits else None
        return _shown(getattr(limit, end), numbers.microseconds) if limit is not None else None


def chapters(folder: Path, reference: Path) -> list[tuple[Path, str]]:
    """Each chapter's page and the essay's, with what its template makes of the recorded runs; the figures' files.

    Raises ReportError for a chapter that they do not support, ResultsError or OSError; nothing without templates.
    """
    templates = [*sorted((folder / TEMPLATES).glob(f"*{ENDING}")), *folder.parent.glob(ESSAY)]
    if not templates:
        return []
    files = all_results(reference, f"{FOLDER}/*")
    runs = {path.parent.name: ChapterRun(load(path.parent), path.parent.name) for path in files}
    for path in all_results(reference.parent / LANGUAGES / LANGUAGES_ON, "*"):
        runs[f"{LANGUAGES} {path.parent.name}"] = ChapterRun(load(path.parent), path.parent.name)
    for path in [point for study, of in STUDIES.items() for point in all_results(reference, f"{of}/studies/{study}/*")]:
        runs[f"{path.parent.parent.name} {path.parent.name}"] = ChapterRun(load(path.parent), path.parent.name)
    models = {name: OwnModel(results, Shown) for name, (_, results) in own_models(reference).items()}
    pages = [
        ((folder.parent if template.name == ESSAY else folder) / template.stem, rendered(template, runs, models))
        for template in templates
    ]
    main, figures = runs[MAIN], folder / FIGURES
    pages += [(figures / f"timeline_{name}.svg", main.timeline(name)) for name in TIMELINES]
    pages += [(figures / f"way_{last}.svg", main.way(first, last)) for first, last in WAYS]
    return pages


def rendered(template: Path, runs: Mapping[str, ChapterRun], models: Mapping[str, OwnModel] | None = None) -> str:
    """One chapter; raises ReportError for a placeholder without a value, and for a claim that does not hold."""
    environment = Environment(
        loader=FileSystemLoader(template.parent),
        undefined=StrictUndefined,
        finalize=_text,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    main = runs.get(MAIN)
    if main is None:
        raise ReportError(f"{template}: there is no recorded run {MAIN}; record it with `make record`")
    recorded = origins((name, model.results) for name, model in (models or {}).items())
    try:
        text = environment.get_template(template.name).render(
            main, run=runs, models=models or {}, models_recorded=recorded, holds=_holds, diff=diff, abs=abs
        )
    except (TemplateError, LookupError, TypeError) as error:
        raise ReportError(f"{template}: {error}; correct the template, or record that run again") from error
    return GENERATED.format(f"{template.parent.name}/{template.name}") + text


def diff(before: str, after: str) -> str:
    """A block that shows what one choice changed: two classes, each as `file.py:Class`, without their docstrings.

    Raises LookupError for a class that is not there.
    """
    old, new = (_class_lines(*text.split(":")) for text in (before, after))
    lines = (f"{line.sign}{line.code}" for line in matched(old, old, new, new))
    return "\n".join(("```diff", *lines, "```"))


def _class_lines(path: str, name: str) -> list[str]:
    """The lines of a class without docstrings, blank lines and remarks to the linter."""
    text = (ROOT / path).read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            left_out = {
                number
                for inner in ast.walk(node)
                if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant)
                for number in range(inner.lineno, (inner.end_lineno or inner.lineno) + 1)
            }
            numbered = enumerate(text.splitlines()[node.lineno - 1 : node.end_lineno], node.lineno)
            kept = (line for number, line in numbered if number not in left_out and line.strip())
            return [re.sub(r"  # noqa.*", "", line) for line in kept]
    raise LookupError(f"{path} has no class {name}")


def _holds(claim: bool) -> str:
    if not claim:
        raise LookupError("a sentence no longer holds for the recorded run (see holds(...) there)")
    return ""


def _text(value: Any) -> Any:
    """A calculated number with three digits; everything else as it is."""
    return numbers.microseconds(value) if type(value) is float else value
