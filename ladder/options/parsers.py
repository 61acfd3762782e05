"""The parser of the command line, with a subparser for each command."""

from __future__ import annotations

import argparse
import difflib
import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from common.errors import UsageError
from ladder.options.command_line import COMMANDS
from ladder.options.commands import Command

PROGRAM = "run_ladder.py"
NEAR = 0.7  # likeness of an option worth suggesting; at 0.6 --processes would mean --resume
TOP_OPTIONS = ("-h", "--help", "--version")


NEEDED = {"--hidden": "positive widths such as 300,100", "--measured-eager": "a step's time such as 20ms"}
OF_OTHER_MODELS = {"--optimizer", "--dropout", "--momentum", "--weight-decay"}


class OneLineParser(argparse.ArgumentParser):
    """Reports a mistake in one line, without the usage above it, and suggests the nearest option."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        option = message.removeprefix("argument ").removesuffix(": expected one argument")
        message += f", {NEEDED[option]}" if option in NEEDED else ""
        raise UsageError(f"{message}; see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown words here, where the parser of the command still knows its own options."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            word = unknown[0].partition("=")[0]
            kind = "option" if word.startswith("-") else "argument"
            known = [name for name in self._option_string_actions if name.startswith("--")]
            near = difflib.get_close_matches(word, known, n=1, cutoff=NEAR)
            command = word.removeprefix("--")
            near = [f"the command {command}"] if command in COMMANDS else near
            of_run = [name for options in COMMANDS["run"].groups.values() for name, *_ in options]
            hint = f"did you mean {near[0]}? " if near else "run has it; " if word in of_run else ""
            if word in OF_OTHER_MODELS:
                hint = "the ladder's own networks train with plain SGD, and `torch my_model.py` measures yours; "
            if word.isdecimal() and "--hidden" in (words := list(args or ())):
                widths = itertools.takewhile(_is_list, words[words.index("--hidden") + 1 :])
                hint = f"--hidden takes commas: --hidden {','.join(width.strip(',') for width in widths)}; "
            layers = re.match(r"(?:--layers[= ])?(\d+(?:(?:-\d+){2,}|(?:,\d+)+))(?: |$)", " ".join(unknown))
            if layers and "--hidden" in {*known} - {*(args or ())}:
                hidden = layers[1] if "," in layers[1] else ",".join(layers[1].split("-")[1:-1])
                hint = f"did you mean --hidden {hidden}? "
            if word == "--lr" and self.prog.endswith(" advise"):
                hint = "the learning rate does not change the time; "
            if word.endswith(".py") and self.prog.endswith(" advise"):
                hint = f"`torch {word}` measures a PyTorch model; "
            raise UsageError(f"{word}: there is no such {kind}; {hint}see {self.prog} --help")
        return parsed, unknown


class Version(argparse.Action):
    """Shows the version, which is read only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """End with exit code 0."""
        import tomllib

        project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
        parser._print_message(f"{project['name']} {project['version']}\n", sys.stdout)
        parser.exit()


class Help(argparse.RawDescriptionHelpFormatter):
    """Help for a terminal of 80 columns."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80, max_help_position=24)


def _is_list(word: str) -> bool:
    return word.replace(",", "").isdecimal()


def parse(argv: Sequence[str]) -> Command:
    """The command that these words ask for; options without a command belong to `run`.

    Raises UsageError for words that are none, with the nearest ones.
    """
    first = argv[0] if argv else "--stages"
    if first not in COMMANDS and not first.startswith("-"):
        near = difflib.get_close_matches(first, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"see {PROGRAM} --help"
        raise UsageError(f"{first if first.isprintable() and first else repr(first)}: there is no such command; {hint}")
    is_whole = first in COMMANDS or first in TOP_OPTIONS
    given = vars(parser().parse_args(list(argv) if is_whole else ["run", *argv]))
    return COMMANDS[given.pop("command")].made(given)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    whole = OneLineParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [COMMAND] [OPTIONS]",
        description="Train the same small network in every stage of a ladder of GPU optimisations,\n"
        "time each stage, and check that all compute the same thing. Without a command\n"
        "this begins at once, and takes minutes.\n\n"
        "commands, each with its own --help:\n"
        + "\n".join(f"  {name:8} {command.summary}" for name, command in COMMANDS.items()),
        epilog=_examples("--stages all", "study --help"),
        formatter_class=Help,
        allow_abbrev=False,
    )
    whole.add_argument("--version", action=Version, help="show the version and exit")
    below = whole.add_subparsers(prog=PROGRAM, dest="command", help=argparse.SUPPRESS, parser_class=OneLineParser)
    for name, command in COMMANDS.items():
        subparser = below.add_parser(
            name,
            usage=f"{PROGRAM} {command.usage}",
            description="\n".join(filter(None, (_sentence(command.summary), command.description))),
            epilog=_examples(*command.examples),
            formatter_class=Help,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
            add_help=False,
        )
        subparser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
        command.add_options(subparser)
    return whole


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


def _examples(*lines: str) -> str:
    return "\n".join(["examples:", *(f"  python {PROGRAM} {line}" for line in lines)])
