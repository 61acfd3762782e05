"""Sentences that several screens share."""

from __future__ import annotations

from collections.abc import Mapping


def skipped_in_words(reasons: Mapping[str, str], of: int | None = None) -> str:
    """One sentence on skipped stages, by name: `28 stages skipped: no CUDA device.`, the commonest reason first.

    `of` is the number of all stages of the run, where it is known: `28 of this run's 39 stages skipped`.
    """
    every = f" of this run's {of}" if of else ""
    named: dict[str, list[str]] = {}
    for name, why in reasons.items():
        named.setdefault(why, []).append(name)
    (why, names), *others = sorted(named.items(), key=lambda pair: -len(pair[1]))
    if not others:
        return f"{f'{len(names)}{every} stages' if len(names) > 1 else names[0]} skipped: {why}."
    most = f"{len(names)} of them for one reason" if len(names) > 1 else f"{names[0]} for this reason"
    return f"{len(reasons)}{every} stages skipped; {most}: {why}."
