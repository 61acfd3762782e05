"""Fuzz targets: readers of a user's input, each fed with one random input.

A target raises unless the reader accepts the input or refuses it with an error of one line.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import shutil
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import msgspec
import numpy as np
from msgspec.structs import replace

import run_ladder
from common.data.dataset import Dataset, Split
from common.data.idx import parse_idx
from common.errors import UsageError
from common.streams import visible
from ladder.options.toml_file import options_of
from ladder.records.run import Results, ResultsError, load, save
from ladder.records.sources import NAME, Sources, sources_of
from ladder.records.study import INDEX, Point, Study, load_study
from ladder.study.study_file import KEYS, VARIED, read_study
from ladder.study.study_session import options_at
from reports.explorer.code import lines, shown_code
from reports.explorer.page import render
from reports.facts.two_runs import CannotCompareError, compare
from stages.registry import load_all
from tests.reports.reporting import report
from tests.reports.sample import results as profiled_results
from tests.reports.sample import unprofiled_results

EDGE_BYTES = (0, 1, 2, 3, 4, 0x7F, 0x80, 0xFF)
VALUES = (
    "0 1 -1 1e999 nan inf 999999999999999999999 0x10 1,2 , .. naive.. all ladder references none auto nsys cupti,nsys"
)
NAMES = """numpy..cublas cuda-graph,naive report limits profile readme compare study gone.py . / /dev/null gone é
-h --help -- - gone.toml study.json results.json"""
OPTIONS = """--stages --hidden --batch-size --learning-rate --epochs --seed --metrics-every --rounds --repeats --warmups
--budget --timeout --profile --tool --stage-file --resume --out --data-dir --stages= --hidden=8,8
--epochs=3 --out=run --no-such --remeasure --precision --time-cap --threshold --strict --format --format=json
--validate-every --config --max-steps --curve-steps --lock-clocks
--no-fail-fast --json --max-steps=3 --curve-steps=5 --lock-clocks=1500 --config=gone.toml"""
COMMANDS = [
    "run", "check", "study", "torch", "compare", "profile", "report", "open", "limits", "readme", "list", "doctor",
    "explain",
]  # fmt: skip
WORDS = [*VALUES.split(), *NAMES.split(), *OPTIONS.split(), "", "a b", "~no-such-user", "\n", "reference:h200", "1%"]

COUNTS = {
    "idx": 5_000, "results": 400, "command-line": 100, "toml": 200, "study": 400, "commands": 20, "study-command": 20,
    "sources": 100,
}  # fmt: skip
"""The inputs of each target in a test."""
FILES = {"results.json", "given.toml", INDEX, NAME}  # targets may leave only these files


def mutated(random: Random, raw: bytes) -> bytes:
    """The bytes with some changed, deleted, repeated or inserted."""
    data = bytearray(raw)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data) + 1)
        kind = random.randrange(5)
        if kind == 0 and at < len(data):
            data[at] = random.choice(EDGE_BYTES) if random.random() < 0.5 else random.randrange(256)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            del data[at : at + random.randint(1, 8)]
        elif kind == 3:
            data[at:at] = random.randbytes(random.randint(1, 8))
        else:
            data[at:at] = data[at : at + random.randint(1, 16)]
    return bytes(data)


def one_line(error: Exception, begin: str) -> None:
    """Raise AssertionError unless the message is one line that begins with the thing at fault."""
    if not str(error).startswith(begin) or "\n" in str(error):
        raise AssertionError(f"no single line: {error!r}")


def idx(random: Random) -> None:
    """An IDX file is read as an array of its header's type, or refused in one line."""
    rank = random.choice((1, 3))
    shape = [random.randrange(4) for _ in range(rank)]
    raw = struct.pack(f">{1 + rank}I", 0x800 + rank, *shape) + random.randbytes(int(np.prod(shape)))
    if random.random() < 0.1:
        raw = gzip.compress(raw, mtime=0)
    given = mutated(random, raw) if random.random() < 0.95 else random.randbytes(random.randrange(64))
    try:
        found = parse_idx(given, "file", rank)
    except UsageError as error:
        one_line(error, "file: ")
        return
    assert found.array.dtype == np.uint8
    assert found.array.ndim == rank
    assert not found.array.flags.writeable


RUN = unprofiled_results()
SAMPLE = msgspec.json.encode(replace(RUN, stages=[RUN.stages[0], RUN.stages[-1]]))

ENTRIES = load_all()
PLAN = Point("seed-1", {"seed": 1}, {"seed": 1, "stages": "all", "hidden": [8], "budget": 2.5, "profile": ["cupti"]})
STUDY = msgspec.json.encode(Study("plan", "Plan", "Why?", "2026-01-01", "command", ["seed"], [PLAN]))


PAGES = 0.2  # share of the files whose page is rendered too, which takes longer than everything else


def results(random: Random, folder: Path) -> None:
    """A results file is read, written and read again unchanged, reported and compared; or refused in one line."""
    path = folder / "results.json"
    path.write_bytes(_other_json(random, SAMPLE) if random.random() < 0.5 else mutated(random, SAMPLE))
    try:
        found = load(path)
    except ResultsError as error:
        one_line(error, f"{path}: ")
        return
    again = msgspec.json.encode(found)
    path.write_bytes(again)
    assert msgspec.json.encode(load(path)) == again
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy's warnings would reach the user
        text = report(found)
        assert visible(text) == text
        if random.random() < PAGES:
            render(found)
        with contextlib.suppress(CannotCompareError):
            compare(RUN, found, ("a", "b"))


OTHERS = ["../up", "a\0\x1b[2J\u202e", "<b>`](data:1)"]  # texts of a stranger


def _other_json(random: Random, sample: bytes) -> bytes:
    """The sample with one value replaced."""
    data = json.loads(sample)
    here: Any = data
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = random.choice(keys)
        if isinstance(here[key], (dict, list)) and here[key] and random.random() < 0.9:
            here = here[key]
            continue
        here[key] = random.choice([*OTHERS, None, -1, 0, 1e308, "", "x\n", [], {}, True, 2**70, {"a": 1}, [1], "NaN"])
        return json.dumps(data).encode()


def _extreme_json(random: Random, sample: bytes) -> bytes:
    """The sample with the same extreme number at every place of one key."""
    data = json.loads(sample)
    keys = sorted({key for key, value in _members(data) if _is_number(value)})
    wanted, extreme = random.choice(keys), random.choice([1e308, 1e-308, 1e30, 0, -1.5, 2**70, 1e16])

    def changed(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: changed(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [changed(inner, key) for inner in value]
        return extreme if key == wanted and _is_number(value) else value

    return json.dumps(changed(data)).encode()


def _members(data: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value below, with the key that it or its list has."""
    inner = data.items() if isinstance(data, dict) else [(key, one) for one in data] if isinstance(data, list) else []
    for name, value in inner:
        yield name, value
        yield from _members(value, name)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


EXPERIMENTS = [path.read_bytes() for path in sorted((Path(run_ladder.__file__).parent / "experiments").glob("*.toml"))]
TOML_VALUES = [
    "0", "1", "-1", "1.5", "1e999", "nan", "inf", "99999999999999999999999", "true", "1979-05-27", '""', '"a"', '"all"',
    '"none"', '"numpy..cublas"', '"float32"', '"nsys,cupti"', '["numpy"]', '["cupti"]', "[]", "[0]", "[1]", "[[1]]",
    "{}", "{a=1}", "", '"two\\nlines"', "[1, 2]", "[[1, 2], [3]]", '["float32", "tf32"]', '"""two\nlines"""',
]  # fmt: skip


def toml(random: Random, folder: Path) -> None:
    """A study's file or a file of options is read, or refused in one line that names it."""
    path = folder / "given.toml"
    path.write_bytes(mutated(random, random.choice(EXPERIMENTS)) if random.random() < 0.4 else _other_toml(random))
    read: list[Callable[[], object]] = [lambda: read_study(path, "", ""), lambda: options_of(path)]
    for reader in read:
        try:
            found = reader()
        except UsageError as error:
            one_line(error, f"{path}")
            continue
        if isinstance(found, Study):
            _options_of_points(found)


def _options_of_points(found: Study) -> None:
    """Each point of the study has options, or is refused in one line."""
    for point in found.points:
        try:
            options_at(point, ENTRIES)
        except UsageError as error:
            one_line(error, "")


def _other_toml(random: Random) -> bytes:
    """Known and unknown keys with random TOML values."""
    keys = [*KEYS, *VARIED, "no-such", '"a b"', "a.b"]
    tables = ["", "[vary]", "[[where]]", "[[published]]", "[vary.seed]", "[other]"]
    lines = []
    for table in ["", *random.choices(tables, k=random.randint(0, 3))]:
        lines.append(table)
        lines += [f"{random.choice(keys)} = {random.choice(TOML_VALUES)}" for _ in range(random.randint(0, 3))]
    return "\n".join(lines).encode()


def study(random: Random, folder: Path) -> None:
    """A study's index is read, written and read again unchanged; or refused in one line."""
    path = folder / INDEX
    path.write_bytes(_other_json(random, STUDY) if random.random() < 0.5 else mutated(random, STUDY))
    try:
        found = load_study(folder)
    except ResultsError as error:
        one_line(error, f"{path}: ")
        return
    again = msgspec.json.encode(found)
    path.write_bytes(again)
    assert msgspec.json.encode(load_study(folder)) == again
    _options_of_points(found)


def command_line(random: Random) -> None:
    """Random words as arguments: success, help, or one line on stderr with exit code 2; nothing is measured."""
    argv = [random.choice(WORDS) for _ in range(random.randint(0, 6))]
    if random.random() < 0.4:
        argv.insert(0, random.choice(COMMANDS))
    if random.random() < 0.2 and argv:
        argv[random.randrange(len(argv))] = "".join(
            chr(random.randrange(1, 0x250)) for _ in range(random.randint(1, 9))
        )
    on_ascii_terminal(argv)


def on_ascii_terminal(argv: Sequence[str], codes: Sequence[int] = (0, 2)) -> None:
    """Run a command; it must print, on a terminal that knows ASCII alone, or refuse in one line."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run_ladder.main(argv)
        except SystemExit:  # only --help exits this way
            return
    err.seek(0)
    said = err.read()
    assert code in codes, argv
    if code == 2:
        assert said.startswith("run_ladder.py: "), argv
        assert said.count("\n") == 1, (argv, said)
    else:
        assert said == "", (argv, said)


def commands(random: Random, folder: Path) -> None:
    """A damaged results file is explained, reported, compared and resumed; or refused in one line."""
    whole, path = folder / "whole", folder / "results.json"
    whole.mkdir(exist_ok=True)
    save(KNOWN, whole / "results.json")
    few = random.sample(KNOWN.stages, random.randint(0, 3))
    machine = random.choice([KNOWN.environment, KNOWN.environment | {"gpu": None}])
    raw = msgspec.json.encode(replace(KNOWN, stages=few, environment=machine))
    change = random.choice([_other_json, _extreme_json, _extreme_json, mutated])
    path.write_bytes(change(random, raw))
    stage = random.choice(few or KNOWN.stages).name
    for argv in (["explain", stage, str(path)], ["compare", str(whole), str(path)], ["compare", *[str(path)] * 3]):
        on_ascii_terminal(argv, (0, 1, 2))
    with measuring_nothing():
        on_ascii_terminal(["--resume", str(path)], (0, 1, 2))
        on_ascii_terminal(["report", str(path)])
    shutil.rmtree(whole)
    for made in {*folder.iterdir()} - {path}:
        shutil.rmtree(made) if made.is_dir() else made.unlink()


def _known() -> Results:
    """A profiled run of stages that exist, as if it had been measured here."""
    run = profiled_results()
    stages = [stage for stage in run.stages if stage.name in ENTRIES]
    return replace(run, stages=stages)


KNOWN = _known()


@contextlib.contextmanager
def measuring_nothing() -> Iterator[None]:
    """Resume a run without its data and its processes: the records alone are read, judged, saved and shown."""
    problem = KNOWN.problem
    images = np.zeros((problem.batch_size, problem.inputs), np.uint8)
    split = Split(images, np.zeros(len(images), np.uint8))
    data = Dataset("MNIST", True, "cache", problem.dataset_sha256, (28, 28), problem.classes, split, split)
    with contextlib.ExitStack() as patched:
        patched.enter_context(mock.patch("ladder.run.session.dataset_of", return_value=data))
        patched.enter_context(mock.patch("ladder.run.session.check_same_machine"))
        for name in ("orders.Orders.due", "stage_run.StageRun.rounds_to_repeat", "stage_run.StageRun.interval"):
            patched.enter_context(mock.patch(f"ladder.run.{name}", return_value=[]))
        yield


def study_command(random: Random, folder: Path) -> None:
    """A damaged study is resumed and reported; or refused in one line."""
    point = folder / PLAN.name
    point.mkdir()
    (folder / INDEX).write_bytes(_other_json(random, STUDY) if random.random() < 0.8 else mutated(random, STUDY))
    save(KNOWN, point / "results.json")
    on_ascii_terminal(["study", "--resume", str(folder)], (0, 1, 2))
    on_ascii_terminal(["report", str(folder)])
    for made in folder.iterdir():
        shutil.rmtree(made) if made.is_dir() else made.unlink()


PLACES = ["stages/a.py", "stages/kernels/b.cu", "stages/kernels/c.cuh", "stages/kernels/d.h", "/e.py", "../f.cu", ""]
CODE = [
    *('"""Why."""\n', "import x\n", "class A(B):\n    c = 1\n", "STAGE = rung('a', 'A', Recipe(gemm=A))\n"),
    *('#include "c.cuh"\n', '#include "d.h"\n', "__global__ void sgd_update(int a) {\n}\n", "// {\n"),
    *("\0\x1b\u202e", "/*", "{", "(" * 300),
]


def sources(random: Random, folder: Path) -> None:
    """The code that a run kept is shown, or refused in one line."""
    path = folder / NAME
    files = {place: "".join(random.choices(CODE, k=random.randint(0, 6))) for place in random.choices(PLACES, k=5)}
    places = random.choice([[*files], [*files], PLACES])
    named = {stage.name: random.choices(places, k=random.randint(0, 4)) for stage in KNOWN.stages}
    raw = msgspec.json.encode(Sources(files, named, {"async": "A"}))
    packed = gzip.compress(raw if random.random() < 0.6 else mutated(random, raw), 1, mtime=0)
    path.write_bytes(packed if random.random() < 0.9 else mutated(random, packed))
    try:
        found = sources_of(KNOWN, folder)
    except ResultsError as error:
        one_line(error, f"{path}: ")
        return
    assert found is not None
    for stage in KNOWN.stages:
        code = shown_code(stage, KNOWN, found)
        for place in code.files if code is not None else ():
            html = "\n".join(lines(place, found.files[place]))
            assert visible(html) == html


@contextlib.contextmanager
def without_side_effects() -> Iterator[None]:
    """Replace everything that the command line would start: loading data, measuring, writing reports.

    A module that is first imported meanwhile would keep what it imports from here, so that no test after it prints.
    """
    for name in ("reports.compare.gate", "reports.render"):
        import_module(name)

    def refuse(*_: object, **__: object) -> None:
        raise UsageError("reached the replaced function")

    with contextlib.ExitStack() as patched:
        for name in (
            "ladder.run.preflight.dataset_of",
            "ladder.run.session.dataset_of",
            "ladder.study.study_session.dataset_of",
            "ladder.doctor.doctor",
            "ladder.machine.limits.measure_limits",
            "reports.markdown.all_documents.documents",
        ):
            patched.enter_context(mock.patch(name, refuse))
        patched.enter_context(mock.patch("reports.writers.write.write", return_value=0))
        patched.enter_context(mock.patch("ladder.run.entries.load_all", side_effect=lambda: dict(ENTRIES)))
        yield


def run(target: str, count: int, seed: int, folder: Path) -> None:
    """Run a target on `count` inputs; a failure names its seed and the command that repeats it."""
    targets: dict[str, Callable[[Random], None]] = {
        "idx": idx,
        "results": lambda random: results(random, folder),
        "command-line": command_line,
        "toml": lambda random: toml(random, folder),
        "study": lambda random: study(random, folder),
        "commands": lambda random: commands(random, folder),
        "study-command": lambda random: study_command(random, folder),
        "sources": lambda random: sources(random, folder),
    }
    with without_side_effects():
        for number in range(seed, seed + count):
            try:
                targets[target](Random(number))
            except BaseException as error:
                error.add_note(f"{target}: seed {number}; again by: python -m tests.fuzz {target} 1 {number}")
                raise
