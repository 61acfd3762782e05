"""What some take instead: Lightning's Trainer fits a LightningModule.

Why: Many a model is written as a LightningModule, and Lightning owns the loop that trains it.
Change: around: `Trainer.fit` with `training_step`, `configure_optimizers` and a scheduler stepped each step. The user's
`augment` is `on_after_batch_transfer`, and `after_backward` is `on_after_backward`. It trains on one device in float32
with the DataLoader of `no-item`. Logger, checkpoints, progress bar, summary and `self.log` are off, so the row shows
the least that its loop takes.
Expect: 0.65 to 0.85 times as fast as `no-item`. An MLP that takes 3,300 us in eager mode on a slow host takes 3,900 to
5,000 us: Lightning calls some 40 hooks a step, for itself and for the user, and counts its progress.
"""

from __future__ import annotations

import contextlib
import logging
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from stages.torch import r1_eager, r2_no_item
from stages.torch.user_model import Batch, Rows

if TYPE_CHECKING:
    from stages.torch.trainer import Trainer

ENDLESS = 1 << 40  # batches; Lightning reads one ahead of a loader without a length


class RowsWithLength(Rows):
    """The batches of a DataLoader, which Lightning asks for their number."""

    def __len__(self) -> int:
        return ENDLESS


class LightningLoop(r1_eager.LoaderBatches):
    """Lightning's fit, which begins at the first step and then waits, in a thread of its own, until it may go on."""

    steps = 0

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self._rows = RowsWithLength(trainer.data.order)
        self._thread: Thread | None = None

    def start(self, row: int) -> None:
        """Go to this row of the order."""
        self._rows.row = row

    def run(self, steps: int) -> None:
        """Train for so many steps."""
        if self._thread is None:
            self._granted, self._answers = SimpleQueue[int](), SimpleQueue[BaseException | None]()
            self._thread = Thread(target=self._fit, args=[stream_here(self._trainer)], daemon=True)
            self._thread.start()
        self._granted.put(steps)
        if (error := self._answers.get()) is not None:
            self._thread = None
            raise error

    def close(self) -> None:
        """End the fit; the next step begins another."""
        if self._thread is not None:
            self._granted.put(0)
            self._thread.join()
            self._thread = None

    def _fit(self, stream: Any) -> None:
        import lightning
        import torch

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)  # of the devices that it finds, and of products
        trainer = self._trainer
        try:
            with stream:
                fitting = lightning.Trainer(
                    accelerator="gpu" if trainer.device.type == "cuda" else "cpu", devices=1, max_epochs=1,
                    logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                    callbacks=[waiting(trainer, self._granted, self._answers)],
                )  # fmt: skip
                own = torch.Generator()  # the loader draws a seed, which must not be the model's
                fitting.fit(lightning_module(trainer), trainer.data.data_loader(self._rows, generator=own))
        except BaseException as error:
            self._answers.put(error)
        else:
            self._answers.put(RuntimeError("Lightning's fit has ended"))


def stream_here(trainer: Trainer) -> Any:
    """A context with this thread's CUDA stream, for another thread: each has a current one of its own."""
    import torch

    if trainer.device.type != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.stream(torch.cuda.current_stream())


def lightning_module(trainer: Trainer) -> Any:
    """The user's model as a LightningModule."""
    import lightning

    user = trainer.user

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = trainer.model

        def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Batch:  # noqa: ARG002
            inputs, targets = trainer.data.as_given(batch)
            return user.augment((inputs, targets)) if user.augment is not None else (inputs, targets)

        def training_step(self, batch: Batch, batch_idx: int) -> Any:  # noqa: ARG002
            loss, values = trainer.forward(*batch)
            trainer.metrics.take({"loss": loss.detach(), **values})
            return loss

        def on_after_backward(self) -> None:
            if user.after_backward is not None:
                user.after_backward(self.network)

        def configure_optimizers(self) -> Any:
            if trainer.scheduler is None:
                return trainer.optimizer
            scheduler = {"scheduler": trainer.scheduler, "interval": "step"}
            return {"optimizer": trainer.optimizer, "lr_scheduler": scheduler}

        def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:  # noqa: ARG002
            trainer.advance()  # steps the scheduler, or begins another after its last step

    return Module()


def waiting(trainer: Trainer, granted: SimpleQueue[int], answers: SimpleQueue[BaseException | None]) -> Any:
    """A callback that holds the fit before its first step, and after as many steps as are granted; none ends it."""
    import lightning

    class Waiting(lightning.Callback):  # type: ignore[misc]
        def on_train_start(self, fitting: Any, module: Any) -> None:  # noqa: ARG002
            self.left = granted.get()

        def on_train_batch_end(self, fitting: Any, *_: Any) -> None:
            if trainer.scheduler is None:
                trainer.advance()
            self.left -= 1
            if not self.left:
                answers.put(None)
                self.left = granted.get()
                fitting.should_stop = not self.left

    return Waiting()


def fitted(trainer: Trainer) -> None:
    """Give the trainer Lightning's loop."""
    trainer.batches = trainer.launch = LightningLoop(trainer)


def unsaved(model: Any) -> str | None:
    """Why Lightning cannot step the scheduler of a model."""
    user = model.user
    if user.scheduler is None:
        return None
    kind = type(user.scheduler(user.optimizer(list(model.initial.parameters()))))
    if hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict"):
        return None
    return (
        f"Lightning saves a scheduler by state_dict(), which {kind.__name__} lacks; "
        "inherit from torch.optim.lr_scheduler.LRScheduler"
    )


RUNG = r2_no_item.RUNG.climb(
    "lightning", "Lightning's loop, for comparison", group="instead", only=unsaved, package="lightning", around=fitted
)
