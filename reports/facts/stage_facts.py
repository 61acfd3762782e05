"""All that is ever shown of a stage, computed once from the record of its run.

Numbers stay numbers here (seconds, shares, ratios); `numbers` turns them into text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ladder.records.exactness import precision_class
from ladder.records.run import BLOCKS, Check, Results, Spread, StageResult, Timing
from reports.facts import numbers
from reports.facts.baselines import Lead, lead, ratio, sm_mhz
from reports.facts.bottleneck import advice_on
from reports.facts.kernel_bottleneck import Advice
from reports.facts.launch_regimes import Regime, regime
from reports.facts.predictions import outcome
from reports.facts.ratios import Ratio
from reports.facts.run_table import (
    ALL_DISTURBED,
    SOME_DISTURBED,
    disturbed_mark,
    fewer_epochs,
    is_undecided,
    lacks_a_check,
    measured_runs,
    not_made,
    passed_in_words,
    reason,
    table_order,
)
from reports.facts.time_breakdown import Change, Profiled, changes, profiled
from reports.facts.times import median_us


@dataclass(frozen=True)
class StageFacts:
    """A stage of a run, beside the others; times and ratios of one that did not pass are None."""

    stage: StageResult
    results: Results

    @property
    def name(self) -> str:
        """Its name."""
        return self.stage.name

    @property
    def is_reference(self) -> bool:
        """Whether it is no rung."""
        return self.stage.group == "reference"

    @property
    def block(self) -> str:
        """Its heading in the table; empty for the ladder itself."""
        return BLOCKS.get(self.stage.group, "")

    @property
    def reason(self) -> str:
        """Why it did not pass; empty if it did."""
        return "" if self.stage.status == "passed" else reason(self.stage)

    @property
    def verdict(self) -> str:
        """`passed`, `passed, 4 checks not made`, or `failed: ` and the reason."""
        return f"{self.stage.status}: {self.reason}" if self.reason else passed_in_words(self.stage, self.results)

    @property
    def timing(self) -> Timing | None:
        """Its runs, if it passed."""
        return self.stage.timing if self.stage.status == "passed" else None

    @property
    def epoch_s(self) -> Spread | None:
        """Seconds an epoch."""
        return self.timing.epoch_s if self.timing else None

    @property
    def step_us(self) -> float | None:
        """Microseconds per step, of all networks."""
        return median_us(self.stage)

    @property
    def regime(self) -> Regime | None:
        """What launches its kernels; None for a reference."""
        return regime_of(self.stage)

    @property
    def us(self) -> str:
        """`step_us` as text; empty without a time."""
        return numbers.microseconds(self.step_us) if self.step_us is not None else ""

    @property
    def step(self) -> str:
        """Microseconds per step with its marks: `36.8†, throttled`."""
        return f"{numbers.microseconds(self.step_us)}{self.disturbed}{', throttled' * self.throttled}"

    @property
    def times(self) -> str:
        """Milliseconds an epoch with remarks: `17.2 (17.1-17.9), throttled`."""
        remarks = [self.shortened] * bool(self.shortened) + ["throttled"] * self.throttled
        return ", ".join([numbers.spread_milliseconds(self.epoch_s), *remarks])

    @property
    def network_us(self) -> float | None:
        """A network's share of a step; None where one trains."""
        networks = self.results.problem.networks
        return self.step_us / networks if self.step_us is not None and networks > 1 else None

    @property
    def learned_best(self) -> str:
        """`rate 0.3, 92.41%`: which of several networks, its accuracy, and any lack of epochs; empty if one trained."""
        metrics, problem = self.stage.metrics, self.results.problem
        seen = [epoch if epoch is not None else -1.0 for epoch in metrics.networks] if metrics else []
        if metrics is None or not self.timing or len(seen) != problem.networks or problem.networks == 1:
            return ""
        best = max(range(len(seen)), key=seen.__getitem__)
        name = f"rate {problem.learning_rates[best]:g}" if problem.learning_rates else f"number {best + 1}"
        return f"{name}, {self._after(metrics.networks[best])}"

    @property
    def step_cycles(self) -> float | None:
        """Cycles of the SM clock after the timed runs, which compare GPUs of one kind at different clocks."""
        clock = sm_mhz(self.stage)
        return self.step_us * clock if self.step_us is not None and clock is not None else None

    @property
    def launches_per_step(self) -> float | None:
        """Kernels or graphs that the host launches."""
        return self.stage.profile.launches_per_step if self.timing and self.stage.profile else None

    @property
    def floor_us(self) -> float | None:
        """The floor of its design, in us/step."""
        return self.stage.bounds.design_floor_us if self.timing and self.stage.bounds else None

    @property
    def times_floor(self) -> float | None:
        """Its time as a multiple of that floor."""
        return self._times(self.floor_us)

    @property
    def times_cheat_limit(self) -> float | None:
        """Its time as a multiple of the problem's cheat limit."""
        return self._times(self.stage.bounds.cheat_limit_us if self.timing and self.stage.bounds else None)

    def _times(self, bound_us: float | None) -> float | None:
        return self.step_us / bound_us if self.step_us is not None and bound_us else None

    @cached_property
    def parent(self) -> StageResult | None:
        """The stage that it climbs from, if the run has it."""
        return self.results.stage(self.stage.below)

    @cached_property
    def versus_parent(self) -> Ratio | None:
        """How many times as fast as its parent it is."""
        return ratio(self.parent, self.stage)

    @property
    def is_as_its_parent(self) -> bool:
        """Whether it is as fast as its parent within noise."""
        return self.versus_parent is not None and self.versus_parent.is_noise

    @property
    def versus_naive(self) -> float | None:
        """How many times as fast as `naive`; only in the same class of precision."""
        naive = self.results.stage("naive")
        if naive is None or precision_class(naive) != precision_class(self.stage):
            return None
        factor = ratio(naive, self.stage)
        return factor.times if factor is not None else None

    @cached_property
    def lead(self) -> Lead | None:
        """Over the fastest reference that is at least as exact, which may be the stage itself."""
        return lead(self.stage, self.results)

    @property
    def lead_over_other(self) -> Lead | None:
        """The same unless the stage is that reference."""
        return self.lead if self.lead is not None and self.lead.reference is not self.stage else None

    @property
    def gpu_memory_mib(self) -> float | None:
        """MiB."""
        return self.timing.gpu_memory_mib if self.timing else None

    @property
    def prepare_s(self) -> float | None:
        """Seconds of preparation."""
        return self.timing.prepare_s if self.timing else None

    @property
    def test_accuracy(self) -> float | None:
        """A share of 0 to 1."""
        return self.stage.metrics.test_accuracy if self.stage.metrics else None

    @property
    def accuracy(self) -> str:
        """The test accuracy, with the epochs if they are fewer than the problem's: `96.93% (10 epochs)`."""
        return self._after(self.test_accuracy)

    def _after(self, accuracy: float | None) -> str:
        fewer = fewer_epochs(self.stage, self.results.problem)
        return numbers.percent(accuracy) + ("" if fewer is None else f" ({numbers.count(fewer, 'epoch')})")

    @property
    def shortened(self) -> str:
        """`2 runs of 3 epochs` if the budget was short, otherwise empty."""
        return measured_runs(self.timing) if self.timing and self.timing.shortened else ""

    @property
    def throttled(self) -> bool:
        """Whether the GPU slowed itself down."""
        return self.timing is not None and self.timing.throttled

    @property
    def disturbed(self) -> str:
        """The mark of a disturbed time; otherwise empty."""
        return disturbed_mark(self.stage) if self.timing else ""

    @property
    def disturbed_word(self) -> str:
        """The same in a word, for other programs: `some` or `all`; empty without a mark."""
        return {SOME_DISTURBED: "some", ALL_DISTURBED: "all"}.get(self.disturbed, "")

    @property
    def processes_disturbed(self) -> int | None:
        """How many of its processes other work disturbed, with or without an effect; None without a time."""
        return sum(bool(process.disturbed) for process in self.stage.processes) if self.timing else None

    @property
    def lacks_a_check(self) -> bool:
        """Whether it passed without a check, as the report's `passed*` says."""
        return lacks_a_check(self.stage, self.results)

    @property
    def is_undecided(self) -> bool:
        """Whether it passed, and rounding decides a check of it alone, as the terminal's `passed?` says."""
        return is_undecided(self.stage, self.results)

    @property
    def not_made(self) -> list[Check]:
        """The checks that were not made of it, but of others."""
        return not_made(self.stage, self.results)

    @cached_property
    def profiled(self) -> Profiled | None:
        """Its step by parts."""
        return profiled(self.stage)

    @cached_property
    def change(self) -> Change | None:
        """The difference of its profile from its parent's."""
        return next((change for change in changes(self.results) if change.rung.stage is self.stage), None)

    @property
    def runs_its_parents_kernels(self) -> bool:
        """Whether a gemm of its own launches what its parent's does, since no size here fits it."""
        profiles = [one.profile for one in (self.stage, self.parent) if one is not None and one.profile is not None]
        used = [[(kernel.name, kernel.blocks, kernel.registers) for kernel in one.kernels] for one in profiles]
        same = len(used) == 2 and used[0] == used[1] and self.is_as_its_parent
        return same and (self.stage.changed or "").startswith("gemm")

    @cached_property
    def advice(self) -> Advice | None:
        """What bounds its step, and what to try."""
        is_known = self.profiled is not None or (self.us and self.stage.device == "cpu")
        return advice_on(self.results, self.stage) if is_known else None

    @cached_property
    def outcome(self) -> tuple[str, str]:
        """The author's prediction for this network and batch, and the verdict on it."""
        return outcome(self.stage, self.results)


def regime_of(stage: StageResult) -> Regime | None:
    """What launches a rung's kernels; None for a reference."""
    return None if stage.group == "reference" else regime(stage)


def all_stage_facts(results: Results) -> list[StageFacts]:
    """Of every stage, in the order of the table and never sorted by speed."""
    return [StageFacts(stage, results) for stage in table_order(results)]
