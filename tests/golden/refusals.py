"""Commands that are refused, each with its one line on stderr: `refusals.txt`. A new command begins with `$ `."""

from __future__ import annotations

import os
import shlex
import tempfile
from contextlib import chdir, redirect_stderr
from io import StringIO
from pathlib import Path
from unittest import mock

from msgspec.structs import replace

from ladder.records.run import save
from run_ladder import ROOT, main
from tests.common.data.idx_writer import quartet_arrays, write_files
from tests.reports.recorded import run, stage, times

FILE = Path(__file__).with_suffix(".txt")
STUDY = 'title = "Small"\nquestion = "Does it work?"\nstages = "numpy"\n[vary]\nhidden = [3, 5]\n'


def written() -> dict[str, str]:
    """The line of each command in the file."""
    blocks = (block.partition("\n") for block in FILE.read_text(encoding="utf-8").split("$ ")[1:])
    return {command: line.strip() for command, _, line in blocks}


def make_folder(folder: Path) -> Path:
    """A working folder with runs, damaged ones, a study and its settings, and beside it 400 images in 4 classes."""
    write_files(folder / "digits", quartet_arrays(400, 50, (6, 6), 4))
    here = folder / "here"
    whole = run(stage("naive", times(50.0)))
    wide = replace(whole, problem=replace(whole.problem, batch_size=256))
    others = {"same": whole, "other": run(stage("async", times(50.0))), "wide": wide}
    for name, one in {"base": whole, **others}.items():
        (here / name).mkdir(parents=True)
        save(one, here / name / "results.json")
    text = (here / "base" / "results.json").read_text()
    later = text.replace('"schema_version":1', '"schema_version":9')
    files = {"half.json": text[: len(text) // 2], "list.json": "[1]", "other.json": '{"a": 1}', "later.json": later}
    for name, content in {**files, "small.toml": STUDY, "out/study.json": "{}", "nothing/none": ""}.items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(content)
    (here / "bytes.json").write_bytes(b"\xff\xfe\x00")
    return here


def refusal(command: str, here: Path) -> str:
    """What `main` says of a command, in one line that names no folder of this machine; it has to be refused."""
    environment = {**os.environ, "LADDER_DATA_DIR": str(here.parent / "digits")}
    with chdir(here), mock.patch.dict(os.environ, environment), redirect_stderr(StringIO()) as told:
        status = main([word.replace("ROOT", str(ROOT)) for word in shlex.split(command)])
    (line,) = told.getvalue().splitlines()
    assert status == 2, command
    return line.removeprefix("run_ladder.py: ").replace(str(here), "HERE").replace(str(ROOT), "ROOT")


def refusals() -> str:
    """The text of `refusals.txt`."""
    with tempfile.TemporaryDirectory() as folder:
        here = make_folder(Path(folder).resolve())
        return "\n".join(f"$ {command}\n  {refusal(command, here)}\n" for command in written())
