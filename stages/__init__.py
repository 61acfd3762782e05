"""The public module for your own stages; docs/your-own-stage.md shows how to write one.

Import from here alone: other modules of this project may move. A bare trainer needs `Stage`, `Trainer`, `Params`,
`EpochMetrics`, `Problem` and `Split`:

    from stages import EpochMetrics, Params, Problem, Split, Stage, Trainer

    class Mine(Trainer): ...

    STAGE = Stage("mine", "My trainer", "reference", "float32", (), Mine)

A rung takes one of ours by its id and changes one part, a subclass of the part's base class: `Memory`, `Data`, `Gemm`
(or `FusingGemm`), `Epilogue`, `Head`, `Update`, `Metrics` or `Launch`:

    from stages import Gemm, rung

    class MyGemm(Gemm): ...

    STAGE = rung("cublas").climb("my-gemm", "My GEMM", gemm=MyGemm)

A part is made from a `Setup`, and computes with `Array`s. `TorchTrainer` and `TorchSetup` are the shared part of our
PyTorch references. A trainer or part that finds its GPU unfit raises `MisfitError`, and the stage is skipped. Importing
this module imports no GPU library.
"""

from __future__ import annotations

from common.cuda.epilogue import Fusion
from common.data.dataset import Split
from common.errors import MisfitError
from common.problem import Params, Problem
from common.trainer import EpochMetrics, Trainer, ValidatingTrainer, WaitingTrainer
from common.vocabulary import Group, Precision
from stages.engine.recipe import (
    Data,
    Epilogue,
    FusingGemm,
    Gemm,
    Head,
    Launch,
    Memory,
    Metrics,
    Part,
    Recipe,
    RunStep,
    Update,
)
from stages.engine.stage import Stage
from stages.engine.workspace import Array, Device, Setup
from stages.references.torch_common import TorchSetup, TorchTrainer

__all__ = [
    "Array",
    "Data",
    "Device",
    "Epilogue",
    "EpochMetrics",
    "FusingGemm",
    "Fusion",
    "Gemm",
    "Group",
    "Head",
    "Launch",
    "Memory",
    "Metrics",
    "MisfitError",
    "Params",
    "Part",
    "Precision",
    "Problem",
    "Recipe",
    "RunStep",
    "Setup",
    "Split",
    "Stage",
    "TorchSetup",
    "TorchTrainer",
    "Trainer",
    "Update",
    "ValidatingTrainer",
    "WaitingTrainer",
    "rung",
]


def rung(name: str) -> Stage:
    """Our rung of this id, such as `cublas`, to climb from; raises UsageError with the nearest ids."""
    from stages.registry import find  # here, since it imports every rung

    return find(name).stage
