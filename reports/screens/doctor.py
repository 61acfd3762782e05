"""The screen of `doctor`: a line for each finding, and below it the command that mends what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from reports.facts import numbers
from reports.screens.blocks import Answers, Group, Screen, Sentences, Tone

MARKS: dict[Tone, str] = {"plain": "ok ", "quiet": "-  ", "doubtful": "!  "}


def doctor_screen(findings: Sequence[tuple[str, str, str, bool]]) -> Screen:
    """Findings as (item, what was found, advice or empty, whether nothing is wrong without the item)."""
    tones: dict[str, Tone] = {
        what: "plain" if not advice else "quiet" if optional else "doubtful" for what, _, advice, optional in findings
    }
    marked = {f"{MARKS[tones[what]]}{what}": (state, advice, tones[what]) for what, state, advice, _ in findings}
    found = Answers(
        {label: state for label, (state, _, _) in marked.items()},
        {label: tone for label, (_, _, tone) in marked.items()},
        {label: advice for label, (_, advice, _) in marked.items() if advice},
    )
    wanting = [what for what, tone in tones.items() if tone == "doubtful"]
    spare = [what for what, tone in tones.items() if tone == "quiet"]
    told = [
        *([f"To look at: {numbers.listing(wanting)}."] if wanting else []),
        *([f"Optional: {numbers.listing(spare)}."] if spare else []),
    ]
    facts = [dict(zip(("what", "found", "advice", "optional"), finding, strict=True)) for finding in findings]
    return Screen("", "", [Group([Sentences(told or ["Everything is here."])])], facts, facts, [found])
