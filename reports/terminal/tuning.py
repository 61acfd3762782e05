"""A tuning record on the terminal, and its heat map as a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ladder.records.files import atomic_write
from ladder.records.run import Spread
from ladder.records.tuning import TUNING, TriedShape, TunedKernel, TuningRecord
from reports.facts import numbers
from reports.terminal.layout import plain_table, wide_enough

HEAT_MAP = "heat_map.svg"
CAPTION = (
    "us per launch on the GPU: the median of several turns, with the fastest and the slowest. "
    "Fixed is the untuned shape; it stays chosen unless another is clearly faster."
)


def render_tuning(record: TuningRecord, folder: Path) -> None:
    """Write the heat map into the folder; OSError if the folder is not writable."""
    from reports.figures.heat_map import heat_map, svg  # late: matplotlib takes most of a second to import

    atomic_write(folder / HEAT_MAP, svg(heat_map(record)))


def print_tuning(record: TuningRecord, folder: Path, console: Console | None = None) -> None:
    """Print the fixed and the chosen shape of each kernel, the shapes left out, and the path of the heat map."""
    console = wide_enough(console)
    console.print()
    title = f"Launch shapes of {record.network}, batch {record.batch_size}, {record.gpu}"
    console.print(Text(title, "bold"), soft_wrap=True)
    console.print(_table(record))
    console.print(Text(CAPTION, "dim"))
    for kernel in record.kernels:
        for line in _left_out(kernel):
            console.print(Text(f"* {kernel.kernel} {kernel.sizes}: {line}"), soft_wrap=True)
    console.print(Text(f"Heat map: {folder / HEAT_MAP}; its numbers: {folder / TUNING}"), soft_wrap=True)


def outcome(kernel: TunedKernel) -> str:
    """The result of one kernel in a line: `8 x 4, 1 x 1: 18.2 us, 1.65x as fast as 16 x 16, 1 x 1`."""
    best = kernel.best.time_us
    time = f"{shape_text(kernel.best)}: {numbers.microseconds(best.median if best else None)} us"
    if kernel.chosen == 0:
        return f"{time}, none is clearly faster"
    return f"{time}, {numbers.ratio(kernel.speedup)} as fast as {shape_text(kernel.fixed)}"


def shape_text(shape: TriedShape) -> str:
    """A shape by its two labels: `16 x 8, 1 x 2`."""
    return f"{shape.down}, {shape.across}"


def _table(record: TuningRecord) -> Table:
    table = plain_table(gap=2)
    table.add_column("kernel\nsizes", overflow="fold")
    for name in ("fixed", "chosen"):
        table.add_column(f"{name}\nus (min-max)", justify="right", no_wrap=True)
    table.add_column("speed", justify="right", no_wrap=True)
    for kernel in record.kernels:
        chosen = (_shape_and_time(kernel.best), numbers.ratio(kernel.speedup)) if kernel.chosen else ("the same", "")
        table.add_row(Text(f"{kernel.kernel}\n{kernel.sizes}"), _shape_and_time(kernel.fixed), *chosen)
    return table


def _shape_and_time(shape: TriedShape) -> str:
    return f"{shape_text(shape)}\n{_spread(shape.time_us)}"


def _spread(spread: Spread | None) -> str:
    """Median with fastest and slowest: `18.2 (18.1-18.5)`."""
    if spread is None:
        return numbers.MISSING
    ends = (numbers.aligned(end, spread.median) for end in (spread.min, spread.max))
    return f"{numbers.microseconds(spread.median)} ({'-'.join(ends)})"


def _left_out(kernel: TunedKernel) -> Iterator[str]:
    """A line for each reason, with the shapes that it left out."""
    reasons = dict.fromkeys(shape.left_out for shape in kernel.tried if shape.left_out)
    for reason in reasons:
        shapes = "; ".join(shape_text(shape) for shape in kernel.tried if shape.left_out == reason)
        yield f"left out {shapes}: {reason}"
