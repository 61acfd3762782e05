"""Which variant a reference builds with: by a rule at once, or the fastest of a search that may take minutes.

`choices.json` holds the searches of `python -m tools.tune_references`. Their winners may time kernels while they
compile, so a run takes them only with `--tune-references`, where the rule's variant was slower: a network takes the
nearest one's, within a factor of eight in batch or parameters; another GPU of the architecture counts as a factor of
two. Otherwise a stage's `Rule`, fitted to all searches, names a variant that times nothing of its own. Its row says
where the nearest search found a faster one.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from common.choice import may_search
from common.cost import parameters
from common.cuda.driver import devices
from common.errors import UsageError
from common.files import atomic_write
from common.problem import Problem

FILE = Path(__file__).with_name("choices.json")
SHOWN = "stages/references/choices.json"
MOST_DISTANT = 3.0  # a factor of eight in the batch, or in parameters; see `distance`
TUNE = "run python -m tools.tune_references"
SLOWER = 0.03  # than the searched one, from which on a row says that a search may gain
MAY_GAIN = "a search may be faster (--tune-references)"


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fastest variant of a stage for one network and batch on one GPU, and the time that chose it."""

    stage: str
    gpu: str
    sm: str  # its architecture, such as sm_90
    inputs: int
    hidden: tuple[int, ...]
    classes: int
    batch_size: int
    variant: str
    step_us: float
    default_step_us: float
    library: str  # name and version
    tried: dict[str, float] = {}
    """What other variants took, as a multiple of the default's time beside them."""

    @property
    def key(self) -> tuple[str, str, int, tuple[int, ...], int, int]:
        """The fields that no two choices share."""
        return self.stage, self.gpu, self.inputs, self.hidden, self.classes, self.batch_size

    @property
    def problem(self) -> Problem:
        """The network and batch."""
        return Problem(self.inputs, self.classes, self.hidden, batch_size=self.batch_size)

    def slower(self, variant: str, default: str) -> float | None:
        """The time of a variant as a multiple of the fastest one's; None if it was not kept."""
        known = {default: 1.0, **self.tried, self.variant: self.step_us / self.default_step_us}
        return known[variant] / min(known.values()) if variant in known else None


@dataclass(frozen=True)
class Rule:
    """One variant for small problems and one for the others, by a size of the problem and the least that is large."""

    small: str
    large: str
    size: Literal["images", "parameters"]
    least: int

    def variant(self, problem: Problem) -> str:
        """The name of the variant for a problem."""
        return self.large if self.size_of(problem) >= self.least else self.small

    def size_of(self, problem: Problem) -> int:
        """The size of a problem that decides."""
        return problem.batch_size if self.size == "images" else parameters(problem)


def variant_for(stage: str, problem: Problem, variants: Collection[str], rule: Rule, default: str) -> tuple[str, str]:
    """The name of the variant to build with, and what the row says of it: empty for the default, if no search gains."""
    found, name = nearest(stage, problem, variants), rule.variant(problem)
    slower = found.slower(name, default) if found else None
    gains = not may_search() and (slower is None or slower > 1 + SLOWER)
    if may_search() and found is not None and slower != 1:  # else the rule's was the fastest
        name = found.variant
    return name, "; ".join([name] * (name != default) + [MAY_GAIN] * gains)


def nearest(stage: str, problem: Problem, variants: Collection[str]) -> Choice | None:
    """The nearest search to this problem on the first GPU; None without one, or if none is near.

    Raises UsageError for a malformed file and for a variant that the stage does not have.
    """
    for gpu in devices()[:1]:
        own = [choice for choice in read() if (choice.stage, choice.sm) == (stage, gpu.sm)]
        near = [choice for choice in own if distance(choice.problem, problem) <= MOST_DISTANT]
        if near:
            # Another GPU counts as one doubling of the network.
            best = min(near, key=lambda choice: distance(choice.problem, problem) + (choice.gpu != gpu.name))
            if best.variant not in variants:
                raise UsageError(f"{SHOWN}: {stage} has no variant {best.variant!r}; {TUNE} {stage}")
            return best
    return None


def distance(first: Problem, second: Problem) -> float:
    """How unlike two problems are: factors of two in batch and parameters, and hidden layers, added up."""
    ratios = (first.batch_size / second.batch_size, parameters(first) / parameters(second))
    return sum(abs(math.log2(ratio)) for ratio in ratios) + abs(len(first.hidden) - len(second.hidden))


def read() -> list[Choice]:
    """Every choice of the file, none without it; UsageError if it is malformed."""
    try:
        return msgspec.json.decode(FILE.read_bytes(), type=list[Choice])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{SHOWN}: {error}; delete it, or {TUNE}") from error


def keep(choices: Collection[Choice]) -> None:
    """Put these into the file, in place of earlier ones for the same stage, GPU, network and batch.

    Several processes may tune side by side, each on a GPU of its own: the folder is locked meanwhile.
    """
    folder = os.open(FILE.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        kept = {choice.key: choice for choice in (*read(), *choices)}
        rows = [msgspec.json.encode(kept[key]).decode() for key in sorted(kept)]
        atomic_write(FILE, "[\n" + ",\n".join(rows) + "\n]\n" if rows else "[]\n")
    finally:
        os.close(folder)
