"""What some take instead: Accelerate prepares model, optimizer, loader and scheduler, and runs the backward pass.

Why: Many a training script is written for Accelerate, which brings it to several GPUs without a change.
Change: around: `Accelerator().prepare(...)` and `accelerator.backward(loss)`, in the loop of Accelerate's documents, on
one device in float32. The DataLoader is that of `no-item`, one batch ahead. The loop calls the user's `augment` and
`after_backward` where they belong.
Expect: 0.9 to 1.0 times as fast as `no-item`. An MLP that takes 3,300 us in eager mode on a slow host takes 3,300 to
3,600 us: the wrappers of batch, optimizer and scheduler cost Python time, and `backward` divides the loss by 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stages.torch import r1_eager, r2_no_item
from stages.torch.user_model import Rows

if TYPE_CHECKING:
    from stages.torch.trainer import Trainer


class AccelerateLoop(r1_eager.LoaderBatches):
    """The loop of Accelerate's documents, with its batches."""

    steps = 0

    def __init__(self, trainer: Trainer) -> None:
        from accelerate import Accelerator

        super().__init__(trainer)
        self._accelerator = Accelerator()
        trainer.call, self._optimizer = self._accelerator.prepare(trainer.model, trainer.optimizer)
        trainer.prepared = self._accelerator.prepare
        trainer.scheduler = trainer.prepared(trainer.scheduler)

    def start(self, row: int) -> None:
        """Prepare a loader that begins at this row of the order."""
        import torch

        data, own = self._trainer.data, torch.Generator()  # the loader draws a seed, which must not be the model's
        self._batches = iter(self._accelerator.prepare(data.data_loader(Rows(data.order, row), generator=own)))

    def run(self, steps: int) -> None:
        """Train for so many steps."""
        trainer, user, accelerator, optimizer = self._trainer, self._trainer.user, self._accelerator, self._optimizer
        assert self._batches is not None
        for _ in range(steps):
            batch = trainer.data.as_given(next(self._batches))
            if user.augment is not None:
                batch = user.augment(batch)
            inputs, targets = batch
            optimizer.zero_grad()
            loss, values = trainer.forward(inputs, targets)
            accelerator.backward(loss)
            if user.after_backward is not None:
                user.after_backward(trainer.model)
            optimizer.step()
            trainer.advance()  # steps the prepared scheduler
            trainer.metrics.take({"loss": loss.detach(), **values})


def accelerated(trainer: Trainer) -> None:
    """Give the trainer Accelerate's loop."""
    trainer.batches = trainer.launch = loop = AccelerateLoop(trainer)
    loop.start(0)


RUNG = r2_no_item.RUNG.climb(
    "accelerate", "Accelerate's loop, for comparison", group="instead", package="accelerate", around=accelerated
)
