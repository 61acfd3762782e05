"""All data lies on the device, and one `index_select` makes a batch.

Why: `no-item` collects each batch item by item on the host and copies it. Small data fits on the device whole.
Change: batches: the same rows in the same order, gathered on the device.
Expect: 1.4 to 2.5 times as fast as `no-item`; for a transformer whose step is long, 1.1 times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stages.torch import r2_no_item
from stages.torch.user_model import Batch

if TYPE_CHECKING:
    from stages.torch.trainer import Trainer


class ResidentBatches:
    """Rows of tensors that lie on the device."""

    needs_resident = True

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._data = trainer.data.resident
        self._order = trainer.data.order_on_device
        self._row = 0

    def start(self, row: int) -> None:
        """Begin at this row of the order."""
        self._row = row

    def next(self) -> Batch:
        """The next batch."""
        rows = self._order[self._row]
        self._row = (self._row + 1) % len(self._order)
        return self._trainer.gathered(self._data, rows)

    def in_graph(self) -> Batch:
        """The batch of the row that a counter on the device names."""
        rows = self._order.index_select(0, self._trainer.counters[:1]).view(-1)
        return self._trainer.gathered(self._data, rows)

    def before_replay(self) -> None:
        """Nothing: the device counts."""

    def close(self) -> None:
        """Nothing works ahead."""


RUNG = r2_no_item.RUNG.climb("resident", "data on the device, one index_select a batch", batches=ResidentBatches)
