"""Words that a shell completes, by argcomplete: commands, options, stages and profilers; other values are files."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import get_args

from common.vocabulary import CONTENDERS, GROUPS
from ladder.records.jobs import Engine
from ladder.records.profile import Tool


def complete(parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Answer the shell and end the process; without argcomplete, or if no one asked, return."""
    try:
        import argcomplete
    except ImportError:
        return
    whole = parser()
    for action in whole._actions:  # options without a command belong to `run`
        if isinstance(action, argparse._SubParsersAction):
            run = action.choices["run"]
            for option in run._actions:
                if option.option_strings and not set(option.option_strings) & set(whole._option_string_actions):
                    whole._add_action(option)
            break
    argcomplete.autocomplete(whole)


def stage_names(prefix: str, **_: object) -> list[str]:
    """The stages whose names begin so."""
    from stages.registry import load_all  # late: the stages import NumPy

    return [name for name in load_all() if name.startswith(prefix)]


def stage_words(prefix: str, **_: object) -> list[str]:
    """Stages and groups for the last word of a list: `naive,cu` becomes `naive,cublas`, `naive..cu` a range."""
    return _last_word(prefix, [*GROUPS, CONTENDERS, *stage_names("")])


def rung_words(prefix: str, **_: object) -> list[str]:
    """The rungs over a model of one's own, for the last word of a list."""
    from stages.torch.registry import RUNGS

    return _last_word(prefix, ["all", *RUNGS])


def example_words(prefix: str, **_: object) -> list[str]:
    """The examples of such a model."""
    from ladder.options.commands import Example

    return [name for name in get_args(get_args(Example)[0]) if name.startswith(prefix)]


def tool_words(prefix: str, **_: object) -> list[str]:
    """Profilers for the last word of a list."""
    return _last_word(prefix, [*get_args(Tool), "auto", "none"])


def format_words(prefix: str, **_: object) -> list[str]:
    """The formats of a comparison."""
    return [name for name in ("text", "markdown", "json") if name.startswith(prefix)]


def engine_words(prefix: str, **_: object) -> list[str]:
    """The places where jobs measure a study."""
    return [name for name in get_args(Engine) if name.startswith(prefix)]


def _last_word(prefix: str, words: Iterable[str]) -> list[str]:
    begin = max(prefix.rfind(","), prefix.rfind("..") + 1 if ".." in prefix else -1) + 1
    return [f"{prefix[:begin]}{word}" for word in words if word.startswith(prefix[begin:])]
