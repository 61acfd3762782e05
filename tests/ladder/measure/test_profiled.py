"""Epochs that are run for a profile."""

from __future__ import annotations

from ladder.measure.profiled import Profiled, Sample
from tests.ladder.measure.test_timing import FakeTrainer


class Waiting(FakeTrainer):
    def wait(self) -> None:
        self.log.append("wait")


def test_each_epoch_of_a_profile_ends_on_the_device() -> None:
    for trainer, between in ((FakeTrainer(), []), (Waiting(), ["wait"])):
        Profiled(trainer, Sample((3, 4), (0.5, 0.5)), trainer.fence).warm_up()
        assert trainer.log == ["epoch 3", *between, "fence", "epoch 4", *between, "fence"]
