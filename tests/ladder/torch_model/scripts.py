"""Runs written scripts one after another in one process: `python scripts.py [--recorded] FOLDER COMMAND...`.

A command is a file and its options. Prints a line of JSON for each: its exit status and what it printed. With
`--recorded` a CUDA graph is emulated on the CPU: a recording runs its body once, then puts every tensor back, and a
replay runs the body.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import shlex
import sys
from typing import Any

import torch


class Graph:
    """A graph whose replay runs what was recorded."""

    def replay(self) -> None:
        self.step()

    def step(self) -> None:
        raise AssertionError("nothing is recorded")


class Recording:
    """A recording of the script's `step`, which must leave no trace."""

    def __init__(self, graph: Graph, stream: object) -> None:
        self.graph = graph

    def __enter__(self) -> None:
        script: dict[str, Any] = sys._getframe(1).f_globals
        self.graph.step = script["step"]  # type: ignore[method-assign]
        states = [part for state in script["optimizer"].state.values() for part in state.values()]
        held = [*script["model"].state_dict().values(), *states, *script.values()]
        self.random = torch.get_rng_state()
        self.kept = [(part, part.detach().clone()) for part in held if torch.is_tensor(part)]

    def __exit__(self, *_: object) -> None:
        torch.set_rng_state(self.random)
        with torch.no_grad():
            for part, old in self.kept:
                part.copy_(old)


def status_of(file: str, *options: str) -> tuple[int, str]:
    """A script's exit status and output."""
    sys.argv = [file, *options]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(file, run_name="__main__")
        except SystemExit as end:
            return int(bool(end.code)), printed.getvalue()
    return 0, printed.getvalue()


def main(words: list[str]) -> None:
    if words[0] == "--recorded":
        words = words[1:]
        torch.cuda.set_stream = lambda stream: None
        torch.cuda.Stream = torch.cuda.current_stream = lambda: None
        torch.cuda.CUDAGraph, torch.cuda.graph = Graph, Recording
    sys.path.insert(0, words[0])  # as Python does for a script's folder
    untouched, threads = dict(vars(torch.nn.functional)), torch.get_num_threads()
    for command in words[1:]:
        vars(torch.nn.functional).update(untouched)
        torch.set_num_threads(threads)
        sys.stdout.write(f"{json.dumps(status_of(*shlex.split(command)))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
