"""Which stages are at least as exact as which, and the references that others leave far behind."""

from __future__ import annotations

from collections.abc import Iterable

from ladder.records.run import Precision, StageResult

# From the most exact to the least. bfloat16 and float16 share a class: automatic mixed precision uses either, and both
# run at the same rate.
CLASSES: dict[Precision, str] = {"float32": "float32", "tf32": "tf32", "bfloat16": "bf16/fp16", "float16": "bf16/fp16"}
FAR_BEHIND = 3.0  # times as slow: no rung's lead is over such a reference, whatever a further process would say
FAR_BEHIND_IN_WORDS = f"another reference at least as exact is over {FAR_BEHIND:g} times as fast"


def precision_class(stage: StageResult) -> str:
    """A stage's class of precision: `float32`, `tf32` or `bf16/fp16`."""
    return CLASSES[stage.precision]


def is_as_exact(stage: StageResult, other: StageResult) -> bool:
    """Whether a stage is at least as exact as another: float32, then tf32, then bfloat16 and float16 alike."""
    classes = list(dict.fromkeys(CLASSES.values()))
    return classes.index(precision_class(stage)) <= classes.index(precision_class(other))


def far_behind(stages: Iterable[StageResult]) -> set[str]:
    """The names of the references that another one, at least as exact and on the same device, leaves far behind."""
    timed = [(each, each.timing.step_us) for each in stages if each.group == "reference" and each.timing is not None]
    pairs = ((slow, fast) for slow, slow_us in timed for fast, fast_us in timed if slow_us > FAR_BEHIND * fast_us)
    return {slow.name for slow, fast in pairs if fast.device == slow.device and is_as_exact(fast, slow)}
