"""Measures how often `compare` is wrong and which differences it sees: recorded processes compared with themselves.

`python -m tools.aa_study` writes `results/aa/README.md` from the recordings beside it. A fixed seed makes every output
the same; docs/statistics.md says what it shows.

- Self-comparisons (A/A): a stage's processes are split into two halves, in every way or in `SPLITS` random ways, and
  the halves compared.
- In order: N processes in a row against the next N, like two runs one after the other; by times alone, and with the
  host's pace as `compare` does.
- Power: two sides of N processes are drawn with replacement, and every time of one side grows by a known share.
- Coverage: how often an interval misses a known truth, with processes drawn from four distributions.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from common.files import atomic_write
from ladder.records.run import Results, StageResult, load
from ladder.records.statistics import BOOTSTRAP_PROCESSES, VERDICT_CONFIDENCE, Interval, ratio_interval
from reports.facts.provenance import provenance
from reports.facts.two_runs import Side, Verdict, interval_between, side_of, verdict_of
from reports.markdown.tables import table

RECORDINGS = Path(__file__).parent.parent / "results" / "aa"
DOCUMENT = RECORDINGS / "README.md"
BEGIN = """# Processes compared with themselves

By `python -m tools.aa_study`; [statistics.md](../../docs/statistics.md#measured) says what the columns count.
"""
SPLITS = 1000  # the most; 12 processes have 462
DRAWS = 400
SIDES = (2, 8, 24, 96)
MOST_DRAWN = 4  # as a multiple of the recorded processes
SLOWER_BY = (0.01, 0.02, 0.05)
VERDICTS: tuple[Verdict, ...] = ("SAME", "AMBIGUOUS", "FASTER", "SLOWER")
FALSE: tuple[Verdict, ...] = ("FASTER", "SLOWER")  # for a stage compared with itself
ORDERED = "In order, by times", "with the pace"
SEED = 0
SIMULATED = 1000
# Distributions of the logarithms of times, in units of their spread.
LIKE: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "normal": lambda random, count: random.normal(size=count),
    "with outliers (t, 3 degrees)": lambda random, count: random.standard_t(3, size=count),
    "of two modes": lambda random, count: (random.random(count) < 0.5) + 0.1 * random.normal(size=count),
    "skewed (exponential)": lambda random, count: random.exponential(size=count),
}
SIDES_SIMULATED = ((2, 2), (5, 5), (7, 7), (8, 8), (8, 24), (12, 12), (24, 24))
SPREADS = {True: 0.10, False: 0.01}  # by whether there are few processes: intervals then assume a spread of 10 %


def missed(like: str, sides: tuple[int, int], draws: int = SIMULATED, confidence: float = VERDICT_CONFIDENCE) -> float:
    """The share of intervals of the ratio of two like sides that miss 1."""
    random = np.random.default_rng(SEED)
    spread = SPREADS[min(sides) < BOOTSTRAP_PROCESSES]
    misses = 0
    for _ in range(draws):
        base, new = (np.exp(spread * LIKE[like](random, count)) for count in sides)
        interval = ratio_interval(base, new, confidence)
        misses += not interval.low <= 1 <= interval.high
    return misses / draws


def simulated() -> str:
    """The table of coverage."""
    lines = [[like, *(f"{missed(like, sides):.1%}" for sides in SIDES_SIMULATED)] for like in LIKE]
    columns = ("Processes", *(f"{base} and {new}" for base, new in SIDES_SIMULATED))
    return "\n\n".join(("## Simulated", table(columns, lines, right=[False] + [True] * len(SIDES_SIMULATED))))


def halves(count: int) -> Iterator[tuple[list[int], list[int]]]:
    """Every way to split `count` processes into two equal sides, or `SPLITS` of them; an odd process is left out."""
    half = count // 2
    if math.comb(2 * half, half) // 2 <= SPLITS:
        # The first process stays on the first side: swapping the sides gives the same comparison.
        chosen: Iterator[Sequence[int]] = ((0, *others) for others in combinations(range(1, 2 * half), half - 1))
    else:
        random = np.random.default_rng(SEED)
        chosen = islice(iter(lambda: random.permutation(count)[:half].tolist(), None), SPLITS)
    for side in chosen:
        rest = [index for index in range(count) if index not in side]
        yield list(side), rest[:half]


def part(side: Side, chosen: Sequence[int]) -> Side:
    """The chosen processes of a side; either all or none have a pace of the host."""
    times, paces_s = ([values[i] for i in chosen] if values else [] for values in (side.times, side.paces_s))
    return side._replace(times=times, paces_s=paces_s)


def self_comparisons(whole: Side) -> Counter[Verdict]:
    """The verdicts of one stage's halves against each other."""
    return Counter(
        verdict_of(interval_between(part(whole, half), part(whole, other))) for half, other in halves(len(whole.times))
    )


def first_attempts(stage: StageResult) -> Side:
    """The first attempt of every round, in the order of time; later attempts came after all of them."""
    first = {process.round: process for process in (*stage.processes, *reversed(stage.set_aside))}
    return side_of(msgspec.structs.replace(stage, processes=[first[round_] for round_ in sorted(first)]))


def in_order(whole: Side, side: int) -> str:
    """False verdicts, of all comparisons of `side` processes in a row with the next `side`, from every beginning."""
    verdicts = Counter(
        verdict_of(interval_between(*(part(whole, range(at, at + side)) for at in (begin, begin + side))))
        for begin in range(len(whole.times) - 2 * side + 1)
    )
    return f"{sum(verdicts[verdict] for verdict in FALSE)} of {verdicts.total()}" if verdicts else "-"


def power(whole: Side, side: int) -> tuple[float, list[float]]:
    """The share of false verdicts of two sides of `side` processes, and of SLOWER for each of `SLOWER_BY`."""
    random = np.random.default_rng(SEED)
    false, seen = 0, [0] * len(SLOWER_BY)
    for _ in range(DRAWS):
        base, new = (part(whole, random.choice(len(whole.times), side).tolist()) for _ in range(2))
        interval = interval_between(base, new)
        false += verdict_of(interval) in FALSE
        for index, share in enumerate(SLOWER_BY):
            # If times grow by a share, so does every ratio; the interval is one of logarithms.
            longer = Interval(*(end * (1 + share) for end in interval))
            seen[index] += verdict_of(longer) == "SLOWER"
    return false / DRAWS, [count / DRAWS for count in seen]


def study(name: str, results: Results) -> str:
    """The section of one recording."""
    stages = [(stage, side) for stage in results.stages if len((side := side_of(stage)).times) > 1]
    counted = [self_comparisons(side) for _, side in stages]
    parted = [_parted(stage, side.times, verdicts) for (stage, side), verdicts in zip(stages, counted, strict=True)]
    total = sum(counted, Counter[Verdict]())
    false = sum(total[verdict] for verdict in FALSE)
    drawn = [line for stage, side in stages for line in _drawn(stage, side)]
    columns = ("Stage", "Processes", "Scatter", "Disturbed", "Self-comparisons", *VERDICTS, "Second half / first")
    return "\n\n".join(
        (
            f"## {name}",
            provenance(results),
            table(columns, parted, right=[False] + [True] * (len(columns) - 1)),
            f"False verdicts: {false} of {total.total()} self-comparisons, {false / total.total():.2%}.",
            table(
                ("Stage", "A side", "False", *ORDERED, *(f"{share:.0%} seen" for share in SLOWER_BY)),
                drawn,
                right=[False] + [True] * (2 + len(ORDERED) + len(SLOWER_BY)),
            ),
        )
    )


def _parted(stage: StageResult, times: list[float], verdicts: Counter[Verdict]) -> list[str]:
    half = len(times) // 2
    drift = ratio_interval(times[:half], times[half:]).value
    disturbed = sum(bool(process.disturbed) for process in stage.processes)
    return [
        f"`{stage.name}`",
        str(len(times)),
        f"{statistics.stdev(map(math.log, times)):.2%}",
        f"{disturbed}, and {len(stage.set_aside)} set aside" if stage.set_aside else str(disturbed),
        str(verdicts.total()),
        *(str(verdicts[verdict]) for verdict in VERDICTS),
        f"{drift:.4f}",
    ]


def _drawn(stage: StageResult, whole: Side) -> Iterator[list[str]]:
    for side in (side for side in SIDES if side <= MOST_DRAWN * len(whole.times)):
        (false, seen), first = power(whole, side), first_attempts(stage)
        ordered = [in_order(first._replace(paces_s=paces_s), side) for paces_s in ([], first.paces_s)]
        yield [f"`{stage.name}`", str(side), f"{false:.1%}", *ordered, *(f"{share:.0%}" for share in seen)]


def main() -> None:
    """Write the document."""
    recorded = [study(path.name.removesuffix(".json.gz"), load(path)) for path in sorted(RECORDINGS.glob("*.json.gz"))]
    atomic_write(DOCUMENT, "\n\n".join([BEGIN.strip(), *recorded, simulated()]) + "\n")


if __name__ == "__main__":
    main()
