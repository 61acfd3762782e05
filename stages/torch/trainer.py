"""Trains a user's model by the choices of a training step.

A trainer has a model and an optimizer of its own. It begins at the first step, and `load` puts it, in place, at a
checkpoint of another trainer, so that a recorded graph stays valid.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from common.errors import MisfitError
from stages.torch import draws, dropout
from stages.torch.training_step import TrainingStep
from stages.torch.user_model import Batch, Data, Schedule, UserModel, hyperparameters, nested

Recorder = Callable[[Callable[[], None]], Callable[[], None]]
"""Records what a function has the device do, and returns a function that has it done again."""
SEED = 7  # of dropout and of random augmentation, at every start
HOST_OPTIONS = ("foreach", "fused", "capturable", "differentiable")


@dataclass(frozen=True)
class Checkpoint:
    """A training at some step: parameters and buffers by name, the optimizer's state by parameter and name."""

    parameters: dict[str, Any]
    buffers: dict[str, Any]
    state: dict[tuple[int, str], Any]
    position: int


@dataclass(frozen=True)
class Nudge:
    """How parameters are moved: all by a factor, and each at random where there is a seed."""

    seed: int = 0
    factor: float = 1.0
    size: float = 2.0**-24  # of the random moves, relative: half a unit of float32

    def move(self, parameters: Iterable[Any]) -> None:
        """Move these."""
        import torch

        generator = None
        with torch.no_grad():
            for parameter in parameters:
                generator = generator or torch.Generator(device=parameter.device).manual_seed(self.seed)
                parameter.mul_(self.factor)
                if self.seed:
                    noise = torch.randn(
                        parameter.shape, generator=generator, device=parameter.device, dtype=torch.float32
                    )
                    parameter.mul_(1 + noise.to(parameter.dtype) * self.size)


class Trainer:
    """Trains by one training step; `double` computes in float64, for the reference."""

    def __init__(
        self,
        user: UserModel,
        initial: Any,
        data: Data,
        schedule: Schedule,
        choices: TrainingStep,
        *,
        double: bool = False,
        exact: bool = False,
        recorder: Recorder | None = None,
        twin: Trainer | None = None,
    ) -> None:
        """`initial` is the model before its first step; a `twin` lends its own, with the passes. Raises MisfitError.

        `exact` is for comparisons: dropout is off, compiled code draws eager's random numbers, and cuDNN does not round
        factors to TF32, as it does by default.
        """
        import torch

        self.user, self.data, self.schedule, self.choices = user, data, schedule, choices
        self.double, self.exact, self.device = double, exact, data.device
        self.notes: list[str] = []
        self.position = 0
        self._counts_wide = False  # the optimizer's count of steps is in float64
        self.is_captured = choices.launch.steps > 0
        self._recorder = recorder or recorded_by_cuda
        self.model: Any = twin.model if twin else copy.deepcopy(initial).to(self.device).train()
        if double:
            self.model = self.model.double()
        if choices.layout == "channels_last":
            self.model = self.model.to(memory_format=torch.channels_last)
        self.call: Any = self.model
        self.prepared: Callable[[Any], Any] = lambda scheduler: scheduler  # what the loop of others makes of it
        self._enter()
        self.counters = torch.zeros(2, dtype=torch.int64, device=self.device)  # row of the order, step of the schedule
        self._written = user.optimizer(list(self.model.parameters()))
        self.first_numbers = hyperparameters(self._written)
        self.optimizer = choices.optimizer(self, self._written, is_captured=self.is_captured)
        self._follow_schedule()
        self.metrics = choices.metrics(self)
        self.batches = choices.batches(self)
        self.batches.start(0)
        self.launch = choices.launch(self)
        if choices.around is not None:
            choices.around(self)
        self.forward: Callable[..., Any] = twin.forward if twin else self._compiled(self._passes())
        self._update = self._compiled_update()
        torch.manual_seed(SEED)

    # What the choices use

    def scalars(self) -> dict[str, Any]:
        """A zero on the device for the loss and each of the user's metrics."""
        import torch

        names = ["loss", *(self.user.metric_names if self.user.metrics else ())]
        return {name: torch.zeros((), dtype=torch.float64, device=self.device) for name in names}

    def on_device(self, batch: Batch, *, asynchronous: bool) -> Batch:
        """A batch copied to the device."""
        inputs, targets = self.data.as_given(batch)
        moved = nested(lambda tensor: tensor.to(self.device, non_blocking=asynchronous), (inputs, targets))
        return self._laid_out(moved)

    def gathered(self, data: Batch, rows: Any) -> Batch:
        """The batch of these rows."""
        return self._laid_out(nested(lambda tensor: tensor.index_select(0, rows), data))

    def _laid_out(self, batch: Batch) -> Batch:
        import torch

        if self.choices.layout != "channels_last":
            return batch
        inputs, targets = batch
        moved = nested(
            lambda tensor: tensor.to(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor, inputs
        )
        return moved, targets

    def rebuilt(self, written: Any, *, is_captured: bool, **options: bool) -> Any:
        """The user's optimizer with other options of how it computes, or itself where nothing changes.

        Raises MisfitError where its class has no such option, or where a graph would freeze what it reads on the host.
        """
        kind = type(written)
        takes = inspect.signature(kind.__init__).parameters
        moving = {*self.schedule.moving} if is_captured else set()
        if lacking := next((name for name in options if name not in takes), None):
            raise MisfitError(f"{kind.__name__} has no {lacking}=; torch.optim's SGD, Adam and AdamW have it")
        if moving - {"lr", "betas"} or ("betas" in moving and "capturable" not in takes):
            name = next(iter(moving - {"lr"}))
            raise MisfitError(
                f"the scheduler moves {name}, which {kind.__name__} reads on the host and a graph would freeze; "
                "move the learning rate alone, such as by cycle_momentum=False"
            )
        if "betas" in moving:  # fused and foreach kernels take them as numbers
            options = {"foreach": False}
            self.notes.append("the scheduler moves beta1, so the optimizer updates one parameter at a time")
        if is_captured and "capturable" in takes:
            options["capturable"] = True
            self._counts_wide = not options.get("fused")
        if "lr" in moving and not options.get("fused") and not options.get("capturable"):
            raise MisfitError(
                f"{kind.__name__} reads the learning rate on the host, and a graph would freeze it; "
                "use an optimizer with fused= or capturable=, or no scheduler"
            )
        if not options:
            return written
        kept = {name: value for name, value in written.defaults.items() if name in takes}
        kept.update({name: None for name in ("foreach", "fused") if name in takes}, **options)
        groups = [
            {name: value for name, value in group.items() if name not in (*HOST_OPTIONS, "initial_lr")}
            for group in written.param_groups
        ]
        try:
            return kind(groups, **kept)
        except (RuntimeError, ValueError, TypeError) as error:
            raise MisfitError(f"{kind.__name__}({', '.join(options)}) is refused: {first_line(error)}") from error

    # Training

    def run(self, steps: int) -> None:
        """Train for so many steps; the device may still work when it returns."""
        self._enter()
        with draws.in_float32() if self.double and self.user.draws else contextlib.nullcontext():
            self.launch.run(steps)

    def step(self, batch: Batch) -> None:
        """One step on a batch of the device."""
        import torch

        if self.user.augment is not None:
            batch = self.user.augment(batch)
        if self.double:
            batch = nested(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor, tuple(batch))
        if self.choices.compiler.arguments:
            torch.compiler.cudagraph_mark_step_begin()
        inputs, targets = batch
        self.optimizer.zero_grad()
        loss, values = self.forward(inputs, targets)
        loss.backward()
        if self.user.after_backward is not None:
            self.user.after_backward(self.model)
        self._update()
        self.metrics.take({"loss": loss.detach(), **values})

    def step_in_graph(self) -> None:
        """One step that needs nothing of the host: the device's counters choose the batch and the schedule's row."""
        import torch

        if self.schedule.columns:
            torch.index_select(self._table, 0, self.counters[1:], out=self._numbers)
        self.step(self.batches.in_graph())
        self.counters.add_(1)

    def recorded(self, steps: int) -> Callable[[], None]:
        """A function that replays so many steps. Recording trains nothing. Raises MisfitError."""
        self.check_recordable()
        self.optimizer.zero_grad()  # gradients get their memory inside of the graph

        def body() -> None:
            for _ in range(steps):
                self.step_in_graph()

        return self._recorder(body)

    def check_recordable(self) -> None:
        """Raise MisfitError where the optimizer, after a step, keeps a number on the host: a graph would freeze it."""
        for parameter in self._parameters:
            for name, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, (int, float)) or (
                    hasattr(value, "device") and value.device.type != self.device.type
                ):
                    raise MisfitError(
                        f"{type(self.optimizer).__name__} keeps {name} on the host, and a graph would freeze it; "
                        "use an optimizer with capturable=, such as AdamW"
                    )

    def advance(self, steps: int = 1) -> None:
        """Count steps that ran, and begin order and schedule again where they end."""
        self.position += steps
        if self.is_captured:
            if self.position % len(self.data.order) == 0:
                self.counters[0].zero_()
            if self.position % self.schedule.steps == 0:
                self.counters[1].zero_()
        elif self.scheduler is not None:
            if self.position % self.schedule.steps == 0:  # the scheduler may refuse to go on
                self._restart_scheduler(0)
            else:
                self.scheduler.step()

    # Checkpoints

    def checkpoint(self) -> Checkpoint:
        """A copy of the training as it is."""
        names = {name for name, _ in self.model.named_parameters()}
        whole = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        return Checkpoint(
            {name: value for name, value in whole.items() if name in names},
            {name: value for name, value in whole.items() if name not in names},
            {
                (index, name): value.detach().clone() if hasattr(value, "dtype") else value
                for index, parameter in enumerate(self._parameters)
                for name, value in self.optimizer.state.get(parameter, {}).items()
                if value is not None
            },
            self.position,
        )

    def load(self, start: Checkpoint, *, seed: int = SEED) -> None:
        """Go to a checkpoint, in place; at least one step must have run.

        `seed` is of dropout and of random augmentation.
        """
        import torch

        self._enter()
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                value.copy_({**start.parameters, **start.buffers}[name])
            for index, parameter in enumerate(self._parameters):
                state = self.optimizer.state.get(parameter, {})
                for name, value in state.items():
                    kept = start.state.get((index, name))
                    if hasattr(value, "dtype") and kept is not None:
                        value.copy_(kept)
                    elif value is not None and kept is not None:
                        state[name] = kept
        self._go_to(start.position, seed)

    def close(self) -> None:
        """End the workers that make batches: left to the garbage collector, each takes seconds."""
        self.batches.close()

    # Inside

    @property
    def _parameters(self) -> list[Any]:
        return list(self.model.parameters())

    def _enter(self) -> None:
        """Set what PyTorch keeps for the whole process."""
        import torch

        dropout.switch(self.model, on=not self.exact)
        torch.set_float32_matmul_precision(self.choices.arithmetic.matmul)
        torch.backends.cudnn.allow_tf32 = not self.exact or self.choices.arithmetic.name != "float32"
        if self.choices.threads:
            torch.set_num_threads(self.choices.threads)

    def _passes(self) -> Callable[[Any, Any], tuple[Any, dict[str, Any]]]:
        """The forward pass, the loss and the metrics."""
        import torch

        call, loss, metrics, autocasts = self.call, self.user.loss, self.user.metrics, self.choices.arithmetic.autocast
        kind = self.device.type
        arithmetic = (lambda: torch.autocast(kind, torch.bfloat16)) if autocasts else contextlib.nullcontext

        def passes(inputs: Any, targets: Any) -> tuple[Any, dict[str, Any]]:
            with arithmetic():
                output = call(inputs)
                value = loss(output, targets)
            values = {}
            if metrics is not None:
                with torch.no_grad():
                    values = metrics(output, targets)
            return value, values

        return passes

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        if self.choices.compiler.arguments is None:
            return function
        arguments: dict[str, Any] = dict(self.choices.compiler.arguments)
        searches = "max-autotune" in arguments.get(
            "mode", ""
        )  # among kernels that round to TF32; it keeps what it finds
        if self.exact and (self.user.draws or searches):  # eager's random numbers, so that runs can be compared
            options = torch._inductor.list_mode_options(arguments.pop("mode", "default"), dynamic=False)
            arguments["options"] = {**options, "fallback_random": True}
        compiled: Callable[..., Any] = torch.compile(function, dynamic=False, **arguments)
        return compiled

    def _compiled_update(self) -> Callable[[], Any]:
        if not self.choices.compiler.whole:
            step: Callable[[], Any] = self._step_that_counts_wide if self._counts_wide else self.optimizer.step
            return step
        import torch

        for group in self.optimizer.param_groups:  # a number would compile anew whenever it moves
            group["lr"] = torch.tensor(float(group["lr"]), device=self.device)
        return self._compiled(lambda: self.optimizer.step())

    def _step_that_counts_wide(self) -> Any:
        """The optimizer's step; the first one makes the count of steps in float64.

        From it the device computes bias corrections, and in float32 1 - 0.999 is wrong by 3e-5 of itself.
        """
        import torch

        if self.optimizer.state:
            return self.optimizer.step()
        usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return self.optimizer.step()
        finally:
            torch.set_default_dtype(usual)

    def _follow_schedule(self) -> None:
        """Give a captured optimizer views of the schedule's row; build the user's scheduler for any other."""
        import torch

        self.scheduler: Any = None
        if not self.is_captured:
            self._restart_scheduler(0)
            return
        if not self.schedule.columns:
            return
        self._table = torch.tensor(self.schedule.rows, dtype=torch.float32, device=self.device)  # (steps, columns)
        self._numbers = self._table[:1].clone()
        for column, (index, name) in enumerate(self.schedule.columns):
            group, number = self.optimizer.param_groups[index], self._numbers[0, column]
            group[name] = (number, group[name][1]) if name == "betas" else number

    def _restart_scheduler(self, position: int) -> None:
        """The user's scheduler at this step."""
        if self.user.scheduler is None:
            return
        for group in self.optimizer.param_groups:
            group.pop("initial_lr", None)
        for (index, name), value in self.first_numbers.items():
            group = self.optimizer.param_groups[index]
            if name == "betas":
                group["betas"] = (value, group["betas"][1])
            elif hasattr(group.get(name), "fill_"):
                group[name].fill_(value)
            else:
                group[name] = value
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # steps without the optimizer's
            self.scheduler = self.user.scheduler(self.optimizer)
            for _ in range(position):
                self.scheduler.step()
        self.scheduler = self.prepared(self.scheduler)

    def _go_to(self, position: int, seed: int) -> None:
        import torch

        self.position = position
        row = position % len(self.data.order)
        self.batches.start(row)
        self.counters.copy_(torch.tensor([row, position % self.schedule.steps]))
        if not self.is_captured:
            self._restart_scheduler(position)
        torch.manual_seed(seed)


def recorded_by_cuda(body: Callable[[], None]) -> Callable[[], None]:
    """Record a function in a CUDA graph on the current stream; its replay is returned.

    Another graph that is collected as garbage meanwhile would invalidate the recording.
    """
    import torch

    torch.cuda.synchronize()
    gc.collect()
    collects = gc.isenabled()
    gc.disable()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
            body()
    finally:
        if collects:
            gc.enable()
    return graph.replay  # type: ignore[no-any-return]


def first_line(error: BaseException) -> str:
    """The first line of an exception's text, or its type."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return text or type(error).__name__
