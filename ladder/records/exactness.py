"""Which stages are at least as exact as which, and the references that others leave far behind."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ladder.records.run import Precision, StageResult

# From the most exact to the least. bfloat16 and float16 share a class: automatic mixed precision uses either, and both
# run at the same rate.
CLASSES: dict[Precision, str] = {"float32": "float32", "tf32": "tf32", "bfloat16": "bf16/fp16", "float16": "bf16/fp16"}
AS_EXACT = "of the same precision or a higher one"  # of a reference that counts for a stage, in reports
FAR_BEHIND = 3.0  # times as slow: no rung's lead is over such a reference, whatever a further process would say
FAR_BEHIND_IN_WORDS = f"another reference {AS_EXACT} is over {FAR_BEHIND:g} times as fast"

DECIDED = 2.0  # times as slow as the fastest rung of each class that it counts for; see docs/statistics.md
DECIDED_IN_WORDS = f"the fastest rungs are over {DECIDED:g} times as fast, so that no further process changes a verdict"
CLEAR = 1.1  # times as slow or as fast as whatever a rung is compared with
CLEAR_IN_WORDS = f"nothing that they are compared with is within {CLEAR - 1:.0%} of them"


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


def settled(stages: Collection[StageResult], own: Collection[str] = ()) -> dict[str, str]:
    """Why stages need no second process, by name; those of the user's, `own`, always do."""
    found = {CLEAR_IN_WORDS: clear(stages), DECIDED_IN_WORDS: decided(stages, own)}
    return {name: why for why, names in found.items() for name in names if name not in own}


def clear(stages: Iterable[StageResult]) -> set[str]:
    """The names of rungs that no further process would bring near anything that they are compared with.

    These are their parent and children, references as exact, and the fastest rung of their class, which is never among
    the names. The host sets the pace of none of them.
    """
    timed = [(each, each.timing.step_us) for each in stages if each.timing is not None and each.device == "gpu"]
    rungs = [(each, us) for each, us in timed if each.group != "reference"]
    names = set()
    for rung, rung_us in rungs:
        compared = [
            us for other, us in timed
            if rung.name == other.below or rung.below == other.name
            or (other.group == "reference" and is_as_exact(other, rung))
        ]  # fmt: skip
        compared.append(min(us for other, us in rungs if precision_class(other) == precision_class(rung)))
        if rung.regime in ("graph", "one kernel") and all(
            max(us, rung_us) > CLEAR * min(us, rung_us) for us in compared
        ):
            names.add(rung.name)
    return names


def decided(stages: Iterable[StageResult], own: Collection[str] = ()) -> set[str]:
    """The names of the references that the fastest rung of each class that they count for leaves behind.

    A stage of the user's, one of `own`, is not close to them either.
    """
    timed = [(each, each.timing.step_us) for each in stages if each.timing is not None]
    references = [(each, us) for each, us in timed if each.group == "reference" and each.name not in own]
    rungs = [(each, us) for each, us in timed if each.group != "reference" or each.name in own]
    names = set()
    for reference, reference_us in references:
        fastest: dict[str, float] = {}
        for rung, us in rungs:
            if is_as_exact(reference, rung):
                fastest[precision_class(rung)] = min(us, fastest.get(precision_class(rung), us))
        near_own = any(
            max(us, reference_us) <= DECIDED * min(us, reference_us) for rung, us in rungs if rung.name in own
        )
        if fastest and reference_us > DECIDED * max(fastest.values()) and not near_own:
            names.add(reference.name)
    return names
