"""A ladder over a user's model as the record would have it: `a_torch_run()` builds any, from round invented numbers."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ladder.records.run import Process, StageDoc
from ladder.records.torch_run import (
    FIRST_ROW,
    ModelRecord,
    TorchCheck,
    TorchProcess,
    TorchResults,
    TorchRung,
    TorchSettings,
    failure_of,
)

STEPS = 1000
STEPS_PER_EPOCH = 100
DOC = StageDoc("The host waits.", "metrics: the device adds them up.", "1.0 to 1.1 times as fast.")
LIMIT, LESS_EXACT = 4.0e-6, 1.0e-2


def a_process(
    step_us: float, first_step_s: float = 0.1, *, spread: float = 1.02, peak_mib: float | None = 100.0,
    joules: float | None = None,
) -> TorchProcess:  # fmt: skip
    """A process of three runs, the slowest of which takes `spread` times as long as the median."""
    runs_s = [us * STEPS * 1e-6 for us in (step_us / spread**0.5, step_us, step_us * spread)]
    measured = Process(0, first_step_s, [], runs_s, None, [])
    return TorchProcess(measured, STEPS, [run / 2 for run in runs_s], first_step_s, peak_mib, joules)


def a_rung(name: str, parent: str | None, step_us: float | None, **changes: Any) -> TorchRung:
    """A rung with two processes that agree within 1 %, unless other fields are given; without a time, one without."""
    first_step_s = changes.pop("first_step_s", 0.1)
    spread, joules = changes.pop("spread", 1.02), changes.pop("joules", None)
    processes = [a_process(step_us * by, first_step_s, spread=spread, joules=joules) for by in (1.0, 1.01)] \
        if step_us else []  # fmt: skip
    known = TorchRung(
        name, parent, "ladder", f"{name}'s change", f"choice: {name}", [], "float32", DOC, "passed",
        checks=[TorchCheck("parameters after 32 steps", 1.0e-6, LIMIT, LESS_EXACT)], error_ratio=1.0,
        processes=processes,
    )  # fmt: skip
    return replace(known, **changes)


def the_rungs() -> list[TorchRung]:
    """A row of every kind: gains, a defeat, noise, and one each less exact, wrong, refused, left out and instead."""
    way = ["eager", "no-item", "resident", "fused-optimizer", "step-graph", "compiled-graph"]
    rough, far = (TorchCheck("losses after 32 steps", error, 4.0, 16.0, "loss") for error in (6.5, 9e5))
    failed = [far, TorchCheck("parameters after 32 steps", 5300.0, 4.0, 1000.0, "0.weight")]
    return [
        a_rung("eager", None, 2600.0, spread=1.9, joules=0.5, changes=way[:1], same_bits=True, changed=""),
        a_rung("no-item", "eager", 2580.0, spread=1.8, changes=way[:2], same_bits=True),
        a_rung("workers", "no-item", 5200.0, first_step_s=1.5, changes=[*way[:2], "workers"]),
        a_rung("resident", "no-item", 1300.0, changes=way[:3], same_bits=True),
        a_rung("fused-optimizer", "resident", 1000.0, changes=way[:4]),
        a_rung("amp-bf16", "fused-optimizer", None, changes=[*way[:4], "amp-bf16"], precision="bfloat16",
               status="refused", checks=[], error_ratio=None,
               reason="autocast leaves a float64 buffer"),
        a_rung("compile", "fused-optimizer", 650.0, first_step_s=20.0, changes=[*way[:4], "compile"]),
        a_rung("step-graph", "fused-optimizer", 200.0, first_step_s=0.5, changes=way[:5], joules=0.05,
               notes=["The scheduler's rate is read from the device."]),
        a_rung("compiled-graph", "step-graph", 100.0, first_step_s=12.0, changes=way, joules=0.03, error_ratio=1.1),
        a_rung("graph-channels-last", "compiled-graph", None, changes=[*way, "graph-channels-last"],
               status="refused", checks=[], error_ratio=None, reason="no convolution"),
        a_rung("graph-tf32", "compiled-graph", None, precision="tf32", status="wrong", checks=failed, error_ratio=5.0e5,
               changes=[*way, "graph-tf32"], reason=failure_of(failed)),
        a_rung("graph-bf16", "compiled-graph", 80.0, first_step_s=12.0, precision="bfloat16", status="less exact",
               changes=[*way, "graph-bf16"], checks=[rough], error_ratio=1300.0, reason=failure_of([rough])),
        a_rung("compiled-graph-without-fused-optimizer", "compiled-graph", 130.0, first_step_s=12.0, group="left out",
               changes=[name for name in way if name != "fused-optimizer"]),
        a_rung("compiled-graph-without-step-graph", "compiled-graph", 650.0, first_step_s=20.0, group="left out",
               changes=[name for name in way if name != "step-graph"]),
        a_rung("graphed-callables", "fused-optimizer", 820.0, first_step_s=0.4, group="instead",
               changes=[*way[:4], "graphed-callables"]),
    ]  # fmt: skip


def a_torch_run(**changes: Any) -> TorchResults:
    """The run with other fields: of the record, of its `model` or of its `settings`, each by its name."""
    known = TorchResults(
        created="2026-11-20T10:00:00Z",
        command="python run_ladder.py torch my_model.py --epochs 3000",
        environment={
            "gpu": {"name": "NVIDIA H200", "driver": "580.65"},
            "libraries": {"torch": "2.11.0"},
            "code": {"git_commit": "0123456789abcdef0123456789abcdef01234567"},
        },
        model=ModelRecord(
            "my_model.py", "ab" * 32, 50_000, 128, 12_800, STEPS_PER_EPOCH, "AdamW", ["lr"], has_dropout=False,
            has_convolution=False, reference="float64", data="tensors, 47 MB", waits=["my_model.py:41"],
            notes=["The loss is a sum, not a mean."],
        ),
        settings=TorchSettings(3000, 2, 3, ["all"]),
        rungs=the_rungs(),
        seconds=200.0,
        took_s={FIRST_ROW: 20.0, "timing": 120.0, "judging": 60.0},
    )  # fmt: skip
    parts = {"model": known.model, "settings": known.settings}
    for name, value in changes.items():
        owner = next((part for part, of in parts.items() if name in of.__struct_fields__), "")
        if owner:
            parts[owner] = replace(parts[owner], **{name: value})
        else:
            known = replace(known, **{name: value})
    return known if "model" in changes or "settings" in changes else replace(known, **parts)


def with_rung(run: TorchResults, name: str, **changes: Any) -> TorchResults:
    """The run with other fields of one rung."""
    return replace(run, rungs=[replace(rung, **changes) if rung.name == name else rung for rung in run.rungs])


def without_rungs(run: TorchResults, *names: str) -> TorchResults:
    """The run without these rungs."""
    return replace(run, rungs=[rung for rung in run.rungs if rung.name not in names])
