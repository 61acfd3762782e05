"""How near the references' rules come to searches: `python -m tools.reference_rules` prints it for each kept search.

For each, its rule is fitted once more to the other networks' searches. A variant that a search did not
time, or did not keep, counts as a fifth slower in the fit, and its row has a dash.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from stages.references import jax_scan, torch_graph
from stages.references.choices import SLOWER, Choice, Rule, read

UNKNOWN = 1.2
RULES = {
    **dict.fromkeys(torch_graph.VARIANTS, (torch_graph.RULE, torch_graph.DEFAULT)),
    **dict.fromkeys(("jax-scan", "jax-scan-bf16"), (jax_scan.RULE, jax_scan.DEFAULT)),
}
"""Each stage's rule, and its default variant."""


def loss(rule: Rule, choices: Sequence[Choice]) -> float:
    """How much slower than the fastest variants those of the rule are, as the sum of logarithms."""
    return sum(math.log(slower_by(rule, choice) or UNKNOWN) for choice in choices)


def slower_by(rule: Rule, choice: Choice) -> float | None:
    """The time of the rule's variant as a multiple of the fastest one's; None if it is not known."""
    return choice.slower(rule.variant(choice.problem), RULES[choice.stage][1])


def fitted(rule: Rule, choices: Sequence[Choice]) -> Rule:
    """The rule with the bound between small and large that loses least, in the middle between two searched sizes."""
    sizes = sorted({rule.size_of(choice.problem) for choice in choices})
    middles = [math.isqrt(low * high) for low, high in pairwise(sizes)]
    return min(
        (replace(rule, least=least) for least in [*middles, 2 * sizes[-1]]), key=lambda each: loss(each, choices)
    )


def main() -> None:
    """Print the table."""
    print(f"{'reference':15} {'network, batch':30} {'by the rule':11}  over the searched  fitted to others  searched")
    errors = []
    for choice in read():
        rule, problem = RULES[choice.stage][0], choice.problem
        others = [each for each in read() if RULES[each.stage][0] == rule and each.problem != problem]
        left_out = slower_by(fitted(rule, others), choice)
        errors.append(left_out)
        network = f"{'-'.join(map(str, (choice.inputs, *choice.hidden, choice.classes)))}, {choice.batch_size}"
        known, without = (f"{seen:.3f}" if seen else "-" for seen in (slower_by(rule, choice), left_out))
        print(f"{choice.stage:15} {network:30} {rule.variant(problem):11} {known:>18} {without:>17}  {choice.variant}")
    near = sum(error is not None and error <= 1 + SLOWER for error in errors)
    unknown = errors.count(None)
    print(f"left out, within {SLOWER:.0%}: {near} of {len(errors)}; not known: {unknown}; the others' rows say so")


if __name__ == "__main__":
    main()
