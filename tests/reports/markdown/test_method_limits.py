from __future__ import annotations

from msgspec.structs import replace

from ladder.machine.limits import PRIMITIVES
from ladder.records.limits import Chip, Limit, LimitsRecord
from reports.markdown.method_limits import EARLIER_US, limits_block, limits_table
from tests.reports import sample


def record(**medians: float) -> LimitsRecord:
    limits = [Limit(name, f"the {name}", "us", us, us, us) for name, us in medians.items()]
    return LimitsRecord(Chip(132, 60 << 20, 64 << 20), limits, {}, 4.5)


def test_every_earlier_time_is_of_a_primitive_in_us() -> None:
    assert set(EARLIER_US) <= {primitive.name for primitive in PRIMITIVES if primitive.unit == "us"}


def test_deviations_are_shown_and_said() -> None:
    told = limits_table([("a", record(launch=3.6, grid_barrier=0.69)), ("b", record(launch=3.96))])
    assert "| Primitive, us | Earlier | a | b | Furthest from earlier | Runs differ by |" in told
    assert "| the launch | 3.60 | 3.60 | 3.96 | +10% | 10% |" in told
    assert "| the grid_barrier | 0.920 | 0.690 | - | -25% | - |" in told
    assert "More than 15% from the earlier value in at least one run: the grid_barrier (-25%)." in told
    assert "More than 5% apart between runs: the launch (10%)." in told
    told = limits_table([("a", record(launch=3.6)), ("b", record(launch=3.7))])
    assert told.endswith(" in at least one run: none. More than 5% apart between runs: none.")


def test_the_table_is_of_the_h200_alone() -> None:
    runs = [
        (f"results/reference/{gpu}/logistic", replace(sample.results(), limits=record(launch=us)))
        for gpu, us in (("h200", 3.5), ("rtx-3060", 9.0))
    ]
    assert limits_block(runs).startswith("| Primitive, us | Earlier | logistic |")
    assert "9.00" not in limits_block(runs)
    assert limits_block(runs[1:]) == "No run is recorded."
