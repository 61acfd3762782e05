"""Records that a stranger sent: they are shown as text, and nothing outside of their folder is written or deleted."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

from ladder.records import foreign
from ladder.records.run import Results, save
from ladder.records.sources import NAME, WAY_OUT
from ladder.records.study import INDEX, Published
from reports.facts.numbers import line
from run_ladder import main
from tests.reports import sample
from tests.reports.study_sample import run_at, study_results

NASTY = "\x1b]0;OWNED\x07\x9b31m\u202e\u2066\u200b\r\0"
SHOWN = r"\x1b]0;OWNED\x07\x9b31m\u202e\u2066\u200b\r\x00"
HTML = (
    "<img src=x onerror=alert(1)> \\`<img src=x>` ` [x](javascript:alert(1)) ![y](java&#115;cript:2) [z]( data:3) ``` "
)
# Of few values, or compared with names and dates.
FIXED = (
    {"name", "below", "status", "group", "precision", "device", "tool", "kind", "row", "regime", "direction", "created"}
    | {"unit", "arithmetic", "git_commit", "varied"}
)  # fmt: skip
STAGE = "async"


def spoilt(data: Any, added: str, key: str = "") -> Any:
    """Plain data of a record with this text behind each text that may be any."""
    if isinstance(data, dict):
        return {name: spoilt(value, added, name) for name, value in data.items()}
    if isinstance(data, list):
        return [spoilt(value, added, key) for value in data]
    return f"{data}{added}" if isinstance(data, str) and key not in FIXED else data


def received(folder: Path, added: str) -> Path:
    """A folder with a run whose texts all have this text behind them, and data and a GPU of such a name."""
    data = spoilt(msgspec.to_builtins(sample.results()), added)
    data["problem"] |= {"dataset": f"MNIST{added}", "is_mnist": False}
    data["environment"]["gpu"]["name"] += added
    folder.mkdir(exist_ok=True)
    (folder / "results.json").write_bytes(msgspec.json.encode(data))
    return folder


def received_study(folder: Path, added: str) -> Path:
    """The same of a study with published numbers."""
    study = study_results([8, 16]).study
    data = spoilt(msgspec.to_builtins(study), added)
    data["published"] = [spoilt(msgspec.to_builtins(Published("Who", "What", "1 s", "GPU", "javascript:4")), added)]
    folder.mkdir()
    (folder / INDEX).write_bytes(msgspec.json.encode(data))
    for point, size in zip(study.points, (8, 16), strict=True):
        (folder / point.name).mkdir()
        run = spoilt(msgspec.to_builtins(run_at(size)), added)
        (folder / point.name / "results.json").write_bytes(msgspec.json.encode(run))
    return folder


def written(folder: Path) -> dict[str, str]:
    """The text of each file that a command wrote, and what is packed inside pages."""
    texts = {
        path.name: path.read_text() for path in folder.rglob("*") if path.suffix in (".md", ".svg", ".csv", ".html")
    }
    for name, text in list(texts.items()):
        if name.endswith(".html") and (packed := re.search(r'id="packed">([^<]+)<', text)):
            texts[f"packed {name}"] = "\n".join(texts_in(unpacked(packed[1])))
    return texts


def unpacked(text: str) -> Any:
    """The data that a page has packed."""
    *pieces, order = gzip.decompress(base64.b64decode(text)).decode().split("\n")
    return json.loads("".join(pieces[number] for number in json.loads(order)))


def texts_in(data: Any) -> Iterator[str]:
    """Every text and key in plain data."""
    inner = [*data, *data.values()] if isinstance(data, dict) else data if isinstance(data, list) else []
    yield from [data] if isinstance(data, str) else (text for one in inner for text in texts_in(one))


def unseen(text: str) -> set[str]:
    """The characters that steer a terminal, or that nobody sees."""
    return {one for one in text if not one.isprintable() and one not in "\n\t"}


@pytest.mark.parametrize("make", [received, received_study])
def test_control_characters_of_a_record_are_shown_as_text_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Any
) -> None:
    folder = make(tmp_path / "sent", NASTY)
    for words in (["report"], ["report", "--json"], ["open"]):
        assert main([*words, str(folder)]) == 0
    if make is received:
        assert main(["explain", STAGE, str(folder)]) == 0
        for form in ("text", "json", "markdown"):
            assert main(["compare", str(folder), str(folder), f"--format={form}"]) == 0
    told = capsys.readouterr()
    texts = written(folder) | {"out": told.out, "err": told.err}
    assert {name: unseen(text) for name, text in texts.items() if unseen(text)} == {}
    assert SHOWN in re.sub(r"\s", "", texts["out"].replace("\\\\", "\\"))
    assert SHOWN in texts["report.md"]
    assert any("packed" in name for name in texts)


@pytest.mark.parametrize("hidden", ["\x7f", "\x9b", "\u202e", r"\u001b"])
def test_a_hidden_character_is_shown_however_the_json_writes_it(tmp_path: Path, hidden: str) -> None:
    (record := tmp_path / "results.json").write_text(f'"{hidden}"', encoding="utf-8")
    assert not unseen(msgspec.json.decode(foreign.read_json(record)))


@pytest.mark.parametrize("make", [received, received_study])
def test_html_of_a_record_is_text_in_markdown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    folder = make(tmp_path / "sent", HTML)
    assert main(["report", str(folder)]) == 0
    reader = MarkdownIt("commonmark").enable("table")
    monkeypatch.setattr(reader, "validateLink", lambda _: True)
    for name in folder.rglob("*.md"):
        shown = reader.render(name.read_text())
        assert "&lt;img src=x onerror" in shown
        assert "<img src=x" not in shown
        assert re.findall(r'(?:href|src)="(?!figures/|https?:|[\w-]+/")[^"]*"', shown) == []
    page = (folder / "report.html").read_text()
    assert "<img src=x" not in page


@pytest.mark.parametrize(
    ("words", "status"),  # compared, the sample's stages are slower
    [(["report", "--csv"], 0), (["report"], 0), (["compare", "reference:h200", "--csv"], 1)],
)
def test_a_formula_of_a_record_is_text_in_a_spreadsheet(
    words: list[str], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    titles = ("=1+1", "+1", "-x", "@x", "\tx", "-1")
    run = sample.results()
    stages = [replace(stage, title=title) for stage, title in zip(run.stages, titles, strict=False)]
    save(replace(run, stages=[*stages, *run.stages[len(stages) :]]), tmp_path / "results.json")
    assert main([words[0], str(tmp_path), *words[1:]]) == status
    texts = [capsys.readouterr().out, *(file.read_text() for file in tmp_path.glob("*.csv"))]
    cells = [cell for text in texts for row in csv.reader(text.splitlines()) for cell in row]
    assert [cell for cell in cells if cell.startswith(("=", "+", "@", "-x", "\t"))] == []
    if words == ["report", "--csv"]:
        assert any(cell.startswith("'=1+1") for cell in cells)
        assert "-1" in cells  # a number


def test_many_small_values_are_refused_before_they_fill_the_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = received(tmp_path / "sent", "")
    raw = (folder / "results.json").read_bytes()
    monkeypatch.setattr(foreign, "MOST_VALUES", values := raw.count(b"[") + raw.count(b"{") + raw.count(b","))
    assert main(["report", str(folder), "--json"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(foreign, "MOST_VALUES", values - 1)
    assert f"more than {values - 1:,} values" in refused(["report", str(folder)], capsys)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a `<b>` c", "a `<b>` c"),
        ("a ` <b>", "a &#96; &lt;b>"),
        ("[a](https://b/c.html) [d](figures/e.svg)", "[a](https://b/c.html) [d](figures/e.svg)"),
        ("[a](javascript:b)", "[a&#93;(javascript:b)"),
        ("[a]: javascript:b", "&#91;a]: javascript:b"),
        ("weight[0]: 1", "weight[0]: 1"),
        ("~~~ a", "&#126;~~ a"),
    ],
)
def test_a_line_keeps_code_and_links_to_files_and_the_web(given: str, shown: str) -> None:
    assert line(given) == shown
    assert line(shown) == shown


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says that refuses in one line."""
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("run_ladder.py: ")
    assert told.err.count("\n") == 1
    assert told.err[:-1].isprintable()
    return told.err


def with_name(name: str) -> Results:
    return sample.replace_stage(sample.results(), STAGE, name=name)


def with_problem(**changes: object) -> Results:
    run = sample.results()
    return replace(run, problem=replace(run.problem, **changes))


@pytest.mark.parametrize(
    ("run", "named"),
    [
        (with_name("x/../../up"), "stage name 'x/../../up'"),
        (with_name("a\0b"), r"stage name 'a\\x00b'"),
        (with_name(".."), "stage name '..'"),
        (with_name("cublas"), "stage name 'cublas': twice"),
        (sample.replace_stage(sample.results(), STAGE, below="../up"), "stage name '../up'"),
        (with_problem(batch_size=-128), "$.problem.batch_size"),
        (with_problem(epochs=0), "$.problem.epochs"),
        (with_problem(hidden=[8, 0]), "$.problem.hidden"),
        (with_problem(hidden=[1] * 1001), "$.problem.hidden"),
        (with_problem(learning_rate=-0.1), "$.problem.learning_rate"),
        (with_problem(seed=-1), "$.problem.seed"),
    ],
)
def test_a_name_or_a_size_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Results, named: str
) -> None:
    save(run, tmp_path / "sent.json")
    for words in (["report"], ["report", "--json"], ["open"], ["explain", STAGE], ["compare", "reference:h200"]):
        assert named in refused([*words, str(tmp_path / "sent.json")], capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["sent.json"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("kind", "name"),
    [("pipe", "results.json"), ("pipe", INDEX), ("device", INDEX), ("deep", "results.json"), ("large", "results.json")],
)
def test_a_file_that_has_no_end_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b'{"schema_version": 1, "a": ' + b"[" * 200_000)
    monkeypatch.setattr(foreign, "MOST_BYTES", 100_000 if kind == "large" else 1 << 20)
    assert str(path) in refused(["report", str(tmp_path)], capsys)


def place(folder: Path) -> dict[str, str]:
    """The text of each file in a folder that nobody named."""
    folder.mkdir()
    files = {"step_time.svg": "a", "study.csv": "b", "timeline-mine.svg": "c", "ladder.svg": "d"}
    for name, text in files.items():
        (folder / name).write_text(text)
    return files


@pytest.mark.parametrize("make", [received, received_study])
def test_a_link_for_figures_keeps_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Any) -> None:
    folder, files = make(tmp_path / "sent", ""), place(tmp_path / "elsewhere")
    (folder / "figures").symlink_to(tmp_path / "elsewhere")
    main(["report", str(folder)])
    assert f"{folder / 'figures'}: a link" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in (tmp_path / "elsewhere").iterdir()} == files


def test_links_among_the_figures_are_replaced_and_others_files_stay(tmp_path: Path) -> None:
    folder, files = received_study(tmp_path / "sent", ""), place(tmp_path / "elsewhere")
    figures = folder / "figures"
    figures.mkdir()
    for name in ("step_time.svg", "curves.svg", "study.csv"):
        (figures / name).symlink_to(tmp_path / "elsewhere" / "step_time.svg")
    for name in ("mine.svg", "mine.csv", "step_time-old.svg"):
        (figures / name).write_text("mine")
    (figures / "curves-old.svg").mkdir()
    (folder / "report.md").symlink_to(tmp_path / "elsewhere" / "study.csv")
    assert main(["report", str(folder)]) == 0
    assert {path.name: path.read_text() for path in (tmp_path / "elsewhere").iterdir()} == files
    kept = {path.name for path in figures.iterdir()}
    assert kept == {"step_time.svg", "study.csv", "mine.svg", "mine.csv", "curves.svg", "curves-old.svg"}
    assert not (figures / "step_time.svg").is_symlink()
    assert not (folder / "report.md").is_symlink()


def test_a_value_that_leads_out_of_a_folder_is_no_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = received_study(tmp_path / "sent", "")
    found = msgspec.json.decode((folder / INDEX).read_bytes())
    found["varied"].append("precision")
    for point in found["points"]:
        point["values"]["precision"] = "/../../../up"
    (folder / INDEX).write_bytes(msgspec.json.encode(found))
    assert "figure 'step_time-precision-/../../../up.svg'" in refused(["report", str(folder)], capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["sent"]


def test_code_that_a_file_names_but_lacks_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = received(tmp_path / "sent", "")
    (folder / NAME).write_bytes(gzip.compress(b'{"files": {"a.py": "x"}, "stages": {"async": ["b.py"]}}'))
    for command in ("report", "open"):
        main([command, str(folder)])
        told = capsys.readouterr().err
        assert told == f"run_ladder.py: {folder / NAME}: names 'b.py', which it does not hold; {WAY_OUT}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r'data_dir = "a\u0000\u001b[2J"', r"a\x00\x1b[2J: No such file or directory"),
        (r'stages = "a\u0000\u202e"', r"a\\x00\\u202e': unknown"),
        ("a = " + "[" * 100_000, "not TOML"),
    ],
)
def test_a_plan_that_a_stranger_sent_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "plan.toml").write_text(text)
    assert said in refused(["--config", str(tmp_path / "plan.toml")], capsys)


def test_marks_of_a_terminal_s_library_are_shown_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = received(tmp_path / "sent", " [/red][link=data:1]x")
    assert main(["compare", *[str(folder)] * 3]) == 0
    assert "red][link=data:1]x" in capsys.readouterr().out  # a line for each folder of a long name
