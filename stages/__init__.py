"""The public module for your own stages: import from here alone, since other modules may move.

A trainer of your own is a `Stage` around a `Trainer`, made from a `Problem` and a `Split` of the images; it loads and
reads `Params`, and tells `EpochMetrics`. A rung takes one of ours by its id and changes one part, here a subclass of
`Gemm`, made from a `Setup` to compute with `Array`s: `rung("cublas").climb("my-gemm", "My GEMM", gemm=MyGemm)`. One
that finds its GPU unfit raises `MisfitError`, and the stage is skipped. docs/your-own-stage.md shows both.
"""

from __future__ import annotations

from common.cuda.epilogue import Fusion
from common.data.dataset import Split
from common.errors import MisfitError
from common.problem import Params, Problem
from common.trainer import EpochMetrics, Trainer, ValidatingTrainer, WaitingTrainer
from common.vocabulary import Group, Precision
from stages.engine.recipe import Data, Epilogue, FusingGemm, Gemm, Head, Launch, Memory, Metrics, RunStep, Update
from stages.engine.stage import Stage
from stages.engine.workspace import Array, Device, Setup
from stages.references.torch_common import TorchSetup, TorchTrainer
from stages.registry import rung

__all__ = [
    "Array", "Data", "Device", "Epilogue", "EpochMetrics", "FusingGemm", "Fusion", "Gemm", "Group", "Head", "Launch",
    "Memory", "Metrics", "MisfitError", "Params", "Precision", "Problem", "RunStep", "Setup", "Split", "Stage",
    "TorchSetup", "TorchTrainer", "Trainer", "Update", "ValidatingTrainer", "WaitingTrainer", "rung",
]  # fmt: skip
