"""The chapters of docs/climb/, and the essay beside that folder, filled in from the recorded runs.

A chapter is a Jinja template in `docs/climb/templates/`, whose numbers are placeholders: `{{ us["cuda-graph"] }}`. The
sentences that depend on a number state it as well: `{{ holds(us["cuda-graph"] < us["async"]) }}` prints nothing, and
refuses to write a chapter that a new recording contradicts.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from ladder.records.run import Results, StageResult, all_results, load
from reports.facts import numbers
from reports.facts.baselines import lead
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


class Named(Mapping[str, Any]):
    """Values by name, each made when a chapter asks for it; a name without a value is an error."""

    def __init__(self, what: str, make: Callable[[str], Any]) -> None:
        self._what, self._make = what, make

    def __getitem__(self, name: str) -> Any:
        """The value of a name; raises LookupError without one."""
        value = self._make(name)
        if value is None:
            raise LookupError(f"the recorded run has no {self._what} of {name}")
        return value

    def __iter__(self) -> Iterator[str]:
        """No names: they are not known beforehand."""
        return iter(())

    def __len__(self) -> int:
        """No length, for the same reason."""
        return 0


class ChapterRun:
    """What chapters say of one recorded run, by the names of its rungs."""

    def __init__(self, results: Results, folder: str = MAIN) -> None:
        self._results = results
        self.folder = folder
        self._rungs = {stage.name: StageFacts(stage, results) for stage in results.stages}
        self.heading = heading(results)
        self.network = results.problem.network
        self.recorded = recorded(results)
        self.multiprocessors = results.limits.chip.multiprocessors if results.limits else None
        self.l2_mb = round(results.limits.chip.l2_bytes / 1e6) if results.limits else None
        self.us = Named("time", self._us)
        self.ratio = Named("ratio", self._of_gain(lambda gain: Shown(gain.times, gain.text)))
        self.range = Named(
            "ratio", self._of_gain(lambda gain: f"{numbers.ratio(gain.low)} to {numbers.ratio(gain.high)}")
        )
        self.processes = Named("stage", lambda name: len(self._stage(name).processes))
        self.noise = Named("ratio", self._of_gain(lambda gain: gain.is_noise))
        self.error = Named("check", self._error)
        self.lead = Named("lead", self._lead)
        self.predicted = Named("prediction", lambda name: self._judged(name, "predicted"))
        self.verdict = Named("verdict", lambda name: self._judged(name, "text"))
        self.hit = Named("verdict", lambda name: self._judged(name, "hit"))
        self.parts = Named("profile", self._parts)
        self.moved = Named("change", self._moved)
        self.launches = Named("profile", lambda name: self._profile(name, "launches_per_step", numbers.per_step))
        self.kernels = Named("profile", lambda name: self._profile(name, "kernels_per_step", numbers.per_step))
        self.kernel = Named("profile", self._kernels)
        self.floor = Named("floor", self._floor)
        self.arithmetic = Named("floor", self._arithmetic)
        self.traffic = Named("traffic", self._traffic)
        self.limit = Named("limit", lambda name: self._limit(name, "median"))
        self.least = Named("limit", lambda name: self._limit(name, "min"))

    def less(self, name: str, than: str) -> Shown:
        """By how many microseconds a step one stage is shorter than another, in that one's decimals."""
        difference = self.us[than] - self.us[name]
        return Shown(difference, numbers.aligned(abs(difference), float(self.us[than])))

    def table(self, *names: str) -> str:
        """Stages side by side: their time, its parts and their number of kernels."""
        rows = [
            ("**us/step**", [f"**{self.us[name]}**" for name in names]),
            *((part, [str(self.parts[name][part]) for name in names]) for part in PARTS),
            ("launches a step", [str(self.launches[name]) for name in names]),
            ("kernels a step", [str(self.kernels[name]) for name in names]),
        ]
        return table(
            ("", *map(code, names)), [(row, *cells) for row, cells in rows], right=[False] + [True] * len(names)
        )

    def kernel_table(self, *names: str) -> str:
        """The kernels of a step of each stage in their order, and how their sum differs from the part *kernels*."""
        lines = [
            (code(name), code(kernel["name"]), str(kernel["us"]), str(kernel["blocks"]))
            for name in names
            for kernel in self.kernel[name]
        ]
        sums = [f"{numbers.microseconds(sum(kernel['us'] for kernel in self.kernel[name]))} us" for name in names]
        fits = [f"{self.parts[name]['kernels']}" for name in names]
        note = (
            f"As the profiler saw them: {numbers.listing(sums)} in all, where the part *kernels*, scaled to the time "
            f"without the tool, has {numbers.listing(fits)}."
        )
        return "\n".join(
            (table(("Rung", "Kernel", "us/step", "Blocks"), lines, right=[False, False, True, True]), "", note)
        )

    def timeline(self, name: str) -> str:
        """The figure of three steps of a stage, below those of the one that it climbs from, as SVG text."""
        rung = self._rung(name)
        both = [stage for stage in (rung.parent, rung.stage) if stage is not None]
        return on_one_clock([shown(stage) for stage in both], self._results).svg()

    def way(self, first: str, last: str) -> str:
        """The figure of what each rung on the way from one stage to another changed, as SVG text."""
        way: list[Change] = []
        name = last
        while name != first:
            change = self._rung(name).change
            if change is None:
                raise LookupError(f"the recorded run has no way from {first} to {last}: it stops at {name}")
            way.insert(0, change)
            name = self._stage(name).below or ""
        return waterfall.drawn(self._results, way).svg()

    def page(self, name: str) -> str:
        """A link to a stage in the run's report; in the site it leads to the stage on the run's page."""
        anchor = re.sub(r"[^\w\- ]", "", f"{name} {title_of(self._stage(name))}".lower()).replace(" ", "-")
        return f"[its page](../../results/reference/{FOLDER}/{self.folder}/report.md#{anchor})"

    def _rung(self, name: str) -> StageFacts:
        if name not in self._rungs:
            raise LookupError(f"the recorded run has no stage {name}")
        return self._rungs[name]

    def _stage(self, name: str) -> StageResult:
        return self._rung(name).stage

    def _of_gain(self, told: Callable[[Ratio], Any]) -> Callable[[str], Any]:
        """Something of the speedup over the stage that one climbs from."""

        def of(name: str) -> Any:
            gain = self._rung(name).versus_parent
            return told(gain) if gain is not None else None

        return of

    def _us(self, name: str) -> Shown | None:
        timing = self._stage(name).timing
        return Shown(timing.step_us, numbers.microseconds(timing.step_us)) if timing else None

    def _error(self, name: str) -> Shown | None:
        errors = [check.error for check in self._stage(name).checks if check.what == EPOCH]
        return Shown(errors[0], numbers.error(errors[0])) if errors and errors[0] is not None else None

    def _lead(self, name: str) -> dict[str, Any] | None:
        best_lead = lead(self._stage(name), self._results)
        if best_lead is None:
            return None
        return {"times": Shown(best_lead.ratio.times, best_lead.ratio.text), "over": best_lead.reference.name}

    def _judged(self, name: str, field: str) -> Any:
        judgement = judge(self._stage(name), self._results)
        return getattr(judgement, field) if judgement is not None else None

    def _profiled(self, name: str) -> Profiled:
        rung = self._rung(name).profiled
        if rung is None:
            raise LookupError(f"the recorded run has no profile of {name}")
        return rung

    def _profile(self, name: str, field: str, text: Callable[[float], str]) -> Shown:
        value = getattr(self._profiled(name).profile, field)
        return Shown(value, text(value))

    def _parts(self, name: str) -> dict[str, Shown]:
        rung = self._profiled(name)
        parts = rung.detailed_us | rung.parts_us
        return {part: Shown(us, numbers.aligned(us, rung.step_us)) for part, us in parts.items()}

    def _moved(self, name: str) -> dict[str, Shown] | None:
        change = self._rung(name).change
        if change is None:
            return None
        parts = change.parts_us | change.detailed_us
        return {part: Shown(us, numbers.change(us, change.slower_us)) for part, us in parts.items()}

    def _kernels(self, name: str) -> list[dict[str, Any]]:
        kernels = self._profiled(name).profile.kernels
        names = kernel_names([kernel.name for kernel in kernels])
        return [
            {
                "name": names[kernel.name],
                "us": Shown(kernel.us_per_step, numbers.microseconds(kernel.us_per_step)),
                "blocks": kernel.blocks,
                "idle": max((self.multiprocessors or 0) - kernel.blocks, 0),
            }
            for kernel in kernels
        ]

    def _floor(self, name: str) -> Shown | None:
        bounds = self._stage(name).bounds
        floor = bounds.design_floor_us if bounds else None
        return Shown(floor, numbers.microseconds(floor)) if floor is not None else None

    def _arithmetic(self, name: str) -> Shown | None:
        bounds, limit = self._stage(name).bounds, self.limit["gemm_float32"]
        if bounds is None or bounds.design is None:
            return None
        us = bounds.design.flops / float(limit) / 1e6
        return Shown(us, numbers.microseconds(us))

    def _traffic(self, name: str) -> Shown | None:
        bounds = self._stage(name).bounds
        if bounds is None or bounds.design is None:
            return None
        return Shown(bounds.design.bytes, numbers.size(bounds.design.bytes))

    def _limit(self, name: str, end: Literal["median", "min"]) -> Shown | None:
        limit = self._results.limits.get(name) if self._results.limits else None
        if limit is None:
            return None
        value = getattr(limit, end)
        return Shown(value, numbers.microseconds(value))


def chapters(folder: Path, reference: Path) -> list[tuple[Path, str]]:
    """Each chapter's page and the essay's, with what its template makes of the recorded runs; the figures' files.

    Raises ReportError for a chapter that they do not support, ResultsError or OSError; nothing without templates.
    """
    templates = [*sorted((folder / TEMPLATES).glob(f"*{ENDING}")), *folder.parent.glob(ESSAY)]
    if not templates:
        return []
    files = all_results(reference, f"{FOLDER}/*")
    runs = {path.parent.name: ChapterRun(load(path.parent), path.parent.name) for path in files}
    for path in (reference.parent / LANGUAGES / LANGUAGES_ON).glob("*/results.json"):
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
    given = {name: getattr(main, name) for name in dir(main) if not name.startswith("_")}
    try:
        text = environment.get_template(template.name).render(
            given, run=runs, models=models or {}, models_recorded=recorded, holds=_holds, diff=diff, abs=abs
        )
    except (TemplateError, LookupError, TypeError) as error:
        raise ReportError(f"{template}: {error}; correct the template, or record that run again") from error
    return GENERATED.format(f"{template.parent.name}/{template.name}") + text


def diff(before: str, after: str) -> str:
    """A block that shows what one choice changed: two classes, each as `file.py:Class`, without their docstrings.

    Raises LookupError for a class that is not there.
    """
    old, new = (_class_lines(*text.split(":")) for text in (before, after))
    lines: list[str] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            lines += [f"-{line}" for line in old[a:b]]
        lines += [f"{' ' if tag == 'equal' else '+'}{line}" for line in new[c:d]]
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
