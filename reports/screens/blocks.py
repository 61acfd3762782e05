"""The blocks of a screen. A screen knows no width, markup or colour, and a writer knows no sentence.

Text may name a thing in backticks, `eager`; each writer shows that in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from reports.figures.canvas import Canvas
from reports.figures.chart import ChartLayout

NO_BREAK = "\N{NO-BREAK SPACE}"
Row = TypeVar("Row")
Tone = Literal["plain", "strong", "quiet", "good", "doubtful", "bad", "alarm"]


@dataclass(frozen=True)
class Heading:
    """The title of the blocks below it; a page's own has level 1."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Sentences:
    """A paragraph, or a list with an item for each text."""

    texts: Sequence[str]
    tone: Tone = "plain"
    is_list: bool = False


@dataclass(frozen=True)
class Titled:
    """A paragraph with a title in the same line."""

    title: str
    text: str


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    header: str  # lines, separated by line feeds
    cells: Sequence[str]
    rank: int = 0  # where room is scarce, the lowest ranks stay; rank 0 always does
    is_number: bool = False
    tones: Mapping[str, Tone] = field(default_factory=dict)  # by the text of a cell
    tone: Tone = "plain"  # of all other cells
    wider: Column | None = None  # says more, and takes this one's place where there is room at its rank

    @property
    def is_empty(self) -> bool:
        """Whether no cell says anything."""
        return not any(cell.strip(" -") for cell in self.cells)

    @property
    def widest(self) -> Column:
        """The form that says the most."""
        return self.wider.widest if self.wider is not None else self


@dataclass(frozen=True)
class Table:
    """Columns with as many cells each; `headings` stand above the rows of their numbers."""

    columns: Sequence[Column]
    headings: Mapping[int, str] = field(default_factory=dict)
    note: Callable[[Sequence[str]], str] = lambda _: ""  # how to read it, by the headers and cells that are shown
    is_named: bool = True  # its first column names rungs, kernels or the like


@dataclass(frozen=True)
class ColumnOf(Generic[Row]):
    """A column before it has rows: what tables say of each row of a kind, and what other programs read of it."""

    header: str
    text: Callable[[Row], str]
    rank: int = 0  # this and the next four: as a `Column`'s
    is_number: bool = False
    tones: Mapping[str, Tone] = field(default_factory=dict)
    tone: Tone = "plain"
    wider: ColumnOf[Row] | None = None
    data: Mapping[str, Callable[[Row], Any]] = field(default_factory=dict)  # by JSON key, which never changes

    def over(self, rows: Sequence[Row]) -> Column:
        """The column of these rows."""
        wider = self.wider.over(rows) if self.wider is not None else None
        return Column(self.header, list(map(self.text, rows)), self.rank, self.is_number, self.tones, self.tone, wider)


def number(header: str, text: Callable[[Row], str], rank: int = 0, **others: Any) -> ColumnOf[Row]:
    """A column of numbers."""
    return ColumnOf(header, text, rank, is_number=True, **others)


def table_of(rows: Sequence[Row], columns: Iterable[ColumnOf[Row]], note: str = "", *, is_named: bool = True) -> Table:
    """A table of such columns."""
    return Table([column.over(rows) for column in columns], note=lambda _: note, is_named=is_named)


def plain_rows(rows: Iterable[Row], columns: Iterable[ColumnOf[Row]]) -> list[dict[str, Any]]:
    """The rows as plain data."""
    read = [entry for column in columns for entry in column.data.items()]
    return [{key: value(row) for key, value in read} for row in rows]


@dataclass(frozen=True)
class Figure:
    """A picture, drawn in the layout that its writer chooses."""

    file: str
    title: str
    draw: Callable[[ChartLayout], Canvas]


@dataclass(frozen=True)
class Code:
    """Lines of a program or of its output, as they are."""

    title: str
    lines: Sequence[str]
    language: str


@dataclass(frozen=True)
class Folded:
    """Blocks that a reader unfolds; a terminal leaves them out."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Group:
    """Blocks that belong together: no empty line of a terminal stands between them."""

    blocks: Sequence[Block]


@dataclass(frozen=True)
class Answers:
    """A label and an answer each; a path is a file to open. Below an answer, a note."""

    answers: Mapping[str, str | Path]
    tones: Mapping[str, Tone] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


Block = Heading | Sentences | Titled | Table | Figure | Code | Folded | Group | Answers


def unbroken(command: str) -> str:
    """A command that a writer keeps on one line."""
    return command.replace(" ", NO_BREAK)


def in_document(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks where all has room: those of groups one by one, answers as a list, and each table's whole note."""
    for block in blocks:
        if isinstance(block, Group):
            yield from in_document(block.blocks)
        elif isinstance(block, Folded):
            yield Folded(block.title, list(in_document(block.blocks)))
        elif isinstance(block, Answers):
            lines = [f"{label}: {answer} {block.notes.get(label, '')}" for label, answer in block.answers.items()]
            yield Sentences(list(map(str.rstrip, lines)), is_list=True)
        else:
            yield block
            if isinstance(block, Table):
                forms = [column.widest for column in block.columns]
                note = block.note([text for form in forms for text in (form.header, *form.cells)])
                yield Sentences([note] * bool(note), "quiet")


@dataclass(frozen=True)
class Screen:
    """What one command shows, and the same as plain data: `facts`, and the rows of its table."""

    title: str
    origin: str  # of the numbers: machine, date, versions
    blocks: Sequence[Block]
    facts: Any  # plain data or a record
    rows: str | Sequence[Mapping[str, Any]]  # the name of those in `facts`, or rows
    lead: Sequence[Block] = ()  # about all of it, to read first, such as warnings
    no_rows: str = ""  # why there are none, and the way out, where CSV cannot be had without
