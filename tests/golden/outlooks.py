"""What `advise` says of invented times: whether to leave PyTorch, by scenario."""

from __future__ import annotations

from msgspec.structs import replace

from ladder.records.expectation import CAPTURED, NearRun, Outlook, Outlooks, OwnModelRun
from ladder.records.run import Precision
from reports.facts.advice import REFERENCES, changes, deciding, notes, reasons, training_s, verdict

ORDER = ("torch-eager", "torch-graph", "jax-scan")


def one(
    name: str,
    us: float,
    factor: float = 1.1,
    precision: Precision = "float32",
    carried: float = 1.0,
    measured_us: float | None = None,
) -> Outlook:
    """A stage's outlook, within a factor; `carried` is how much slower it is on another GPU."""
    prepare_s = {"torch-graph": 38.0, "jax-scan": 8.0}.get(name, 0.5)
    return Outlook(
        name=name,
        words="the same in bfloat16" if precision == "bfloat16" else "on all multiprocessors",
        group="reference" if name in REFERENCES else "beyond",
        precision=precision,
        regime=None if name in REFERENCES else "one kernel",
        us=us * carried**0.5,
        low_us=us / factor,
        high_us=us * carried * factor,
        carried_us=[us, us * carried],
        is_recorded=False,
        median_error=0.06,
        most_error=factor - 1,
        networks=20,
        prepare_s=prepare_s,
        prepare_ends_s=[prepare_s / 1.2, prepare_s * 1.2],
        measured_us=measured_us,
    )


def outlooks(*stages: Outlook, epochs: int = 200, guess: str = "", untold: tuple[str, ...] = ()) -> Outlooks:
    """The outlook of these stages."""
    return Outlooks(
        gpu="NVIDIA H200",
        recorded_gpu="NVIDIA H200",
        host="Xeon",
        launch_us=5.39,
        eager_differs=3.53,
        dataloader=[1.35, 3.54],
        no_gpu=False,
        guess=guess,
        network="784-300-100-10",
        batch_size=100,
        epochs=epochs,
        images=60_000,
        steps_per_epoch=600,
        stages=list(stages),
        untold=list(untold),
        nearest=[NearRun("results/reference/h200/studies/depth/depth-2", "784-256-256-10", [256, 256], 128, 0.4)],
    )


def small(**changes: float) -> list[Outlook]:
    """The references of a small network."""
    us = {"torch-eager": 940.0, "torch-graph": 45.0, "jax-scan": 38.0} | changes
    return [one(name, us[name], 1.35) for name in ORDER]


RECORDED = OwnModelRun(
    "results/tabular",
    "tabular",
    "H200",
    "AdamW",
    True,
    83_713,
    256,
    30,
    prepare_s=0.3,
    graph_us=140,
)
PLAIN = replace(RECORDED, name="mlp", optimizer="SGD", has_dropout=False)
STEP_GRAPH = replace(one(CAPTURED, 140.0, 1.5), prepare_s=0.8)
GRID, GRID_BF16 = one("persistent-grid", 11.0, 1.14), one("grid-bf16", 9.7, 1.27, "bfloat16")


def with_own_eager(us: float = 1300.0) -> Outlooks:
    """The outlook of a user who trains by another optimizer, and measured an eager step."""
    eager, *others = small()
    found = captured(replace(eager, measured_us=us), *others, GRID)
    return replace(found, optimizer="Adam", ignored=["--optimizer adam"], own_eager=True, own_model=RECORDED)


def captured(*stages: Outlook, epochs: int = 200) -> Outlooks:
    """The outlook of these stages and of one CUDA graph per step, which is recorded."""
    found = outlooks(*stages, STEP_GRAPH, epochs=epochs)
    return replace(found, layer_us=33.0, own_model=PLAIN, own_models=[PLAIN, RECORDED])


def advised() -> str:
    """The text of `outlooks.txt`: the stages that decide, the way that takes least, the verdict and the notes."""
    amp, jax = one("torch-graph-amp", 20.0, precision="bfloat16"), one("jax-scan-bf16", 39.0, precision="bfloat16")
    _, graph, scan = small()
    unsure_amp = replace(one("torch-graph-amp", 20.0, 1.35, "bfloat16"), prepare_s=80.0, prepare_ends_s=[70.0, 90.0])
    scenarios = {
        "six decide": outlooks(*small(), one("exact-u8", 30.0), GRID, GRID_BF16),
        "a slower one of lower precision": outlooks(*small(), GRID, one("streamed-bf16", 12.0, precision="bfloat16")),
        "a graph gains too little to be sure": outlooks(
            *small(**{"torch-graph": 70.0, "jax-scan": 71.0}), one("persistent-grid", 60.0)
        ),
        "nothing is faster": outlooks(*small(**{"torch-graph": 800.0, "jax-scan": 900.0}), one("cuda-graph", 810.0)),
        "references of lower precision": outlooks(*small(), amp, jax, GRID, GRID_BF16),
        "an unsure rung of lower precision": outlooks(*small(), amp, GRID, one("bf16", 10.0, 2.0, "bfloat16")),
        "a recorded one": outlooks(*small(), replace(GRID, is_recorded=True)),
        "on another GPU": outlooks(*small(), GRID, guess="A guess."),
        "one epoch": outlooks(*small(), GRID, epochs=1),
        **{f"{epochs} epochs": outlooks(*small(), epochs=epochs) for epochs in (21, 22, 692, 693)},
        "a graph pays before one in mixed precision": outlooks(*small(), unsure_amp, epochs=1000),
        "without eager mode": outlooks(graph, scan, GRID),
        "rungs alone": outlooks(GRID, GRID_BF16),
        "what the model leaves out": replace(
            captured(*small(), GRID), optimizer="Muon", ignored=["--optimizer muon", "--dropout 0.1"]
        ),
        **{
            f"what the model leaves out, but an own eager step of {us:g} us": with_own_eager(us)
            for us in (100.0, 300.0, 940.0, 1300.0)
        },
        "an own eager step": replace(with_own_eager(), ignored=[]),
        **{
            f"{epochs} epochs, and one graph per step is recorded": captured(*small(), GRID, epochs=epochs)
            for epochs in (1, 22, 200)
        },
        "a graph per step beside recorded rows": captured(*(replace(stage, is_recorded=True) for stage in small())),
        "a graph per step gains nothing": captured(*small(**{"torch-eager": 150.0})),
        "rungs without a range": outlooks(*small(), GRID, untold=("cluster-ahead", "large-batch")),
    }
    return "\n\n".join("\n  ".join([title, *_said(found)]) for title, found in scenarios.items()) + "\n"


def _said(found: Outlooks) -> list[str]:
    stages = deciding(found)
    least = min(stages, key=lambda stage: training_s(stage, found)).name
    decide = f"decide: {', '.join(stage.name for stage in stages)}; least: {least}; changes: {len(changes(found))}"
    return [
        decide,
        *verdict(found),
        *changes(found)[2:3],
        *reasons(found),
        *notes(found),
    ]
