"""What a step should take on a network and a GPU, stage by stage, for `advise`; nothing of it is kept in a file."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from common.vocabulary import Group, Precision, Regime
from ladder.records.profile import Positive

EXAMPLE = "tabular"  # the PyTorch model, recorded and to be had by `torch --example`, of those who train otherwise
PLAIN = "mlp"  # the same of those who train as the rows here do
CHECKED = "tabular", "ppo"  # other recorded models, whose step in a graph is within a tenth of what `PLAIN`'s foretells
CAPTURED = "step-graph"  # the row of one CUDA graph per step, a rung of `torch`


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """A stage's expected time of a step in us; nine in ten should lie between its ends, `CAPTURED`'s by judgement."""

    name: str
    words: str
    group: Group
    precision: Precision
    regime: Regime | None
    us: float
    low_us: float
    high_us: float
    carried_us: list[float]  # to another GPU: without and with the work scaled; without a step that a user measured
    is_recorded: bool  # `us` is the median of recordings of this very network on this GPU, not the model's
    median_error: float  # of the model, as a share, on networks left out; 0 of a stage without a model
    most_error: float  # of nine in ten of them
    networks: int  # that the model was fitted to; 0 without one
    prepare_s: float  # to load and compile, before the first step; the median of the recorded runs, or measured
    prepare_ends_s: list[float]  # of nine in ten of them; twice the measured time
    measured_us: float | None = None  # by `advise --measure`


class NearRun(msgspec.Struct, frozen=True):
    """A recorded run of a network that is near the one asked for."""

    path: str  # from the root of the project
    network: str  # `784-256-10`
    hidden: list[int]
    batch_size: int
    doublings: float  # of layers, weights and batch, from one to the other
    eager_us: float | None = None  # a step in eager mode; None where that was not timed


class OwnModelRun(msgspec.Struct, frozen=True):
    """One CUDA graph per step in a recorded ladder over a PyTorch model, without compilation."""

    path: str  # from the root of the project
    name: str
    gpu: str
    optimizer: str  # its class
    has_dropout: bool
    parameters: int
    batch_size: int
    epochs: int
    prepare_s: float  # until its first step had run
    graph_us: float  # a step


class Outlooks(msgspec.Struct, frozen=True, kw_only=True):
    """The stages that take a network on a GPU, in ladder order."""

    gpu: str
    recorded_gpu: str
    host: str  # the processor whose launches the recorded times have
    layer_us: float | None = None  # that a layer of a captured step takes beyond one of `torch-graph`
    launch_us: float  # of a kernel from Python, on that host or as the user measured it
    eager_differs: float  # times, between recordings of one network
    dataloader: list[float]  # the least and most times of an eager step that it takes with a DataLoader
    no_gpu: bool  # the GPU is assumed: none was named, and this machine has none
    guess: str  # how the times were carried over from the recorded GPU; empty if it is the same
    network: str  # `784-300-100-10`
    batch_size: int
    epochs: int
    images: int
    steps_per_epoch: int
    stages: list[Outlook]
    untold: list[str]  # rungs that take the network and may be the fastest, but too few networks have recorded them
    nearest: list[NearRun]  # the nearest first
    optimizer: str = "SGD"  # its class
    ignored: list[str] = []  # options that change no time here, as they were given
    own_model: OwnModelRun | None = None  # the nearest; another one where options are ignored
    own_models: list[OwnModelRun] = []  # all of them, the nearest first
    own_launch: bool = False  # the user measured a launch
    own_eager: bool = False  # the user measured the eager step, with all that is ignored here

    @property
    def steps(self) -> int:
        """Steps of the whole training."""
        return self.epochs * self.steps_per_epoch


class Expected(msgspec.Struct, frozen=True):
    """A model's estimate, never a measurement; `ladder.run.expected` makes it."""

    us: Positive
    error: Positive  # share of `us`: the root mean square over networks that the model had not seen
    gpu: str  # that the model is of
    times_from: Positive | None = None  # times as fast as its parent; null if that has no estimate
    loses_to: str = ""  # an earlier rung that should be faster by more than 5 % and the error of both estimates
    loses_to_us: Positive | None = None

    @property
    def remark(self) -> str:
        """`expected to lose here: 76 us, exact-u8 57`; empty unless it is."""
        if self.loses_to_us is None:
            return ""
        return f"expected to lose here: {_rounded(self.us)} us, {self.loses_to} {_rounded(self.loses_to_us)}"


def _rounded(us: float) -> str:
    return f"{us:,.{0 if us >= 10 else 1}f}"


class Listed(NamedTuple):
    """A stage as `list` shows it."""

    name: str
    below: str  # the rung that it climbs from; empty for the first rung and for references
    group: Group
    title: str
    needs: str  # `cuda, cublas, sm_90`
    missing: str  # why it cannot run here; empty if it can
    expected: Expected | None = None  # for the network in question
    words: str = ""  # what it changes; empty: the title says it
    regime: Regime | None = None  # how a rung's kernels start
    misfit: str = ""  # why it does not take the network in question; empty if it does, or if none is named
    only_with: str = ""  # the option without which a run leaves it out, by name: `networks`
