"""The part of a stage's step that takes longest, its likely cause, and one thing to try; chosen by rules.

Advice must be possible for the stage's design: one launch for many steps needs no graph, and a step that waits for
the host's copies is not captured before its data lie on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable

from ladder.records.profile import Profile
from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.cpu_bottleneck import next_on_cpu
from reports.facts.kernel_bottleneck import WHOLE, Advice, Case, kernels_advice
from reports.facts.profiles import launch_us
from reports.facts.ratios import NOISE
from reports.facts.time_breakdown import Profiled, fitted, profiled

LARGE = 0.2  # share; where kernels take most, so long a wait for the host is named as well
ONCE_A_STEP = 0.5  # times per step; a rarer call does not belong to every step


def advice_on(results: Results, stage: StageResult) -> Advice:
    """What bounds a timed stage, and one thing to try; a stage on a GPU must have a profile."""
    rung = profiled(stage)
    if stage.device == "cpu" or rung is None:
        return next_on_cpu(results, stage)
    return next_step(results, rung)


def next_step(run: Results, profiled: Profiled) -> Advice:
    """The largest part of a step, its likely cause, and one thing to try."""
    name, us = max(profiled.parts_us.items(), key=lambda part: part[1])
    total = sum(profiled.parts_us.values())
    host = sum(part_us for part, part_us in profiled.parts_us.items() if part.startswith("host")) / total
    beside = f"; for {numbers.share(host)} the GPU waits for the host" * (name == "kernels" and host > LARGE)
    usual = abs(total / profiled.step_us - 1) <= NOISE  # a process that was not profiled may take another time
    step = "a step" if usual else f"the profiled {numbers.aligned(total, total)} us"
    part = f"{numbers.aligned(us, total)} us ({numbers.share(us / total)} of {step}{beside})"
    return ADVICE[name](Case(run, profiled), "the whole step" if us > WHOLE * total else part)


def _copies(case: Case, share: str) -> Advice:
    if not case.profile.copies:
        return Advice(f"Copies take {share}. The profile does not name them.", "")
    longest = max(case.profile.copies, key=lambda copy: copy.us_per_step)
    name = "fills" if longest.direction == "fill" else f"copies, {longest.direction}"
    advice = {
        "host to device": "Keep the data on the GPU, or copy the next batch beside the kernels from pinned memory.",
        "device to host": "Read results less often.",
        "fill": "Let a kernel that runs anyway write these values.",
    }
    bound = (
        f"Copies take {share}, most of it {name}: {numbers.per_step(longest.per_epoch)} per epoch with "
        f"{numbers.size(longest.bytes_per_epoch)}."
    )
    return Advice(bound, advice.get(longest.direction, "Let kernels read the data in place."))


def _queued(case: Case, share: str) -> Advice:
    kernels = case.profile.kernels_per_step
    each = fitted(case.profile).queued_us / kernels if kernels else None
    bound = (
        f"The GPU idles {share} between kernels that are already queued: {_a_step(kernels, 'kernel')}, "
        f"with {numbers.microseconds(each)} us before each."
    )
    return Advice(bound, "Fuse kernels to have fewer gaps.")


def _launching(case: Case, share: str) -> Advice:
    """The advice for a GPU that waits for its host; a graph is advised only where a step can be captured."""
    profile = case.profile
    launches, submitting = profile.launches_per_step, launch_us(profile)
    told = f"The GPU idles {share} because the host has not launched the next kernel yet"
    if _is_in_steps(case, sum(profile.allocations_per_epoch.values())):
        us = _call_us(profile, *profile.allocations_per_epoch)
        told += (
            f": allocating and freeing memory takes the host {numbers.microseconds(us)} us per step under the profiler."
        )
        return Advice(told, "Allocate once, before the first step.")
    takes = "takes" if numbers.per_step(launches) == "1" else "take"
    told += f": {_a_step(launches, 'launch')} {takes} it {numbers.microseconds(submitting)} us under the profiler"
    if submitting < fitted(profile).launching_us / 2:
        told += ", and its other code takes more"
    if _is_in_steps(case, sum(copy.per_epoch for copy in profile.copies if copy.direction == "host to device")):
        us = _call_us(profile, "Memcpy")
        told += f". Copying each batch takes it {numbers.microseconds(us)} us."
        return Advice(told, "Keep the data on the GPU: a CUDA graph can then launch whole epochs.")
    if profile.graph_launches_per_epoch:
        return Advice(f"{told}.", "Put more steps into one graph.")
    if profile.kernels_per_step < 1:
        return Advice(f"{told}.", "Run more steps in one launch.")
    return Advice(f"{told}.", "Capture the steps in a CUDA graph: one launch then queues many kernels.")


def _is_in_steps(case: Case, per_epoch: float) -> bool:
    """Whether something happens about once a step, or more often."""
    timing = case.one.stage.timing
    return timing is not None and per_epoch >= ONCE_A_STEP * timing.steps_per_epoch


def _call_us(profile: Profile, *parts: str) -> float:
    """The host's microseconds per step in calls whose names hold one of these parts."""
    return sum(call.us_per_step for call in profile.calls if any(part in call.name for part in parts))


def _a_step(number: float, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{numbers.per_step(number)} {noun if numbers.per_step(number) == '1' else plural} per step"


def _waiting(case: Case, share: str) -> Advice:
    if case.profile.syncs_per_epoch < 1:
        return Advice(
            f"The GPU idles {share} because the host waits at the end of each epoch.",
            "Launch the next epoch before the last one ends.",
        )
    bound = (
        f"The GPU idles {share} because the host waits for its results: "
        f"{numbers.per_step(case.profile.syncs_per_epoch)} synchronisations per epoch."
    )
    return Advice(bound, "Read results less often.")


ADVICE: dict[str, Callable[[Case, str], Advice]] = {
    "kernels": kernels_advice,
    "copies": _copies,
    "between queued kernels": _queued,
    "host launching": _launching,
    "host waiting": _waiting,
}
