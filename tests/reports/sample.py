"""A run as the ladder would record it, with every kind of row, for the tests of the renderings.

The numbers are invented, and round enough to check ratios by mental arithmetic.
"""

from __future__ import annotations

from msgspec.structs import replace

from ladder.records.limits_record import Chip, DesignFloor, Limit, LimitsRecord, StepBounds
from ladder.records.profile import KernelUse, Profile, Split
from ladder.records.run import (
    Check,
    Energy,
    GpuState,
    Group,
    LossPoint,
    Metrics,
    OracleRecord,
    Precision,
    ProblemRecord,
    Process,
    Results,
    Settings,
    StageDoc,
    StageResult,
    Status,
    Timing,
    with_earlier_words,
)
from ladder.records.statistics import BOOTSTRAP_PROCESSES
from tests.reports.profiles import CUBLAS, kernel, own_kernels, profile

EPOCHS = 20
STEPS = 468
ORACLE_CURVE = [LossPoint(epoch, 0.26 + 0.34 / epoch, 0.93 - 0.07 / epoch) for epoch in range(1, EPOCHS + 1)]


def results() -> Results:
    """The run with profiles of some stages: two of them by two tools, which disagree on one."""
    run = unprofiled_results()
    for name, profiles in _profiles().items():
        run = replace_stage(run, name, profiles=profiles, regime=None)
    for name, own_us in (("naive", 50.0), ("async", 40.0)):
        run = replace_stage(
            run, name, bounds=StepBounds(0.5, DesignFloor(own_us - 10, own_us / 4, 10, 0.0, 1.03e8, 3.0e6, "float32"))
        )
    run = replace_stage(run, "jax-scan", bounds=StepBounds(0.5, None))
    for name in ("async", "cublas", "bf16-gemm"):  # fewer show nothing of a host's noise
        (first,) = next(stage for stage in run.stages if stage.name == name).processes
        run = replace_stage(run, name, processes=[replace(first, round=nth) for nth in range(BOOTSTRAP_PROCESSES)])
    return replace(run, limits=limits())


def fleet() -> Results:
    """A run of three networks with learning rates of their own, to an accuracy, with energy and remarks on times."""
    run = results()
    problem = replace(run.problem, networks=3, learning_rates=[0.03, 0.1, 0.3])
    run = replace(run, problem=problem, settings=replace(run.settings, target_accuracy=0.9))
    for stage in run.stages:
        if stage.metrics is not None:
            run = replace_stage(run, stage.name, metrics=replace(stage.metrics, networks=[0.95, 0.9762, 0.9]))
    of_async = next(stage for stage in run.stages if stage.name == "async")
    first, *others = [replace(process, disturbed=["other work"]) for process in of_async.processes]
    drawn = Energy(0.4, 300.0, 120.0, 25)
    return replace_stage(run, "async", processes=[replace(first, energy=drawn), *others])


def limits() -> LimitsRecord:
    """A GPU's measured limits."""
    rows = [
        Limit("graph_node", "graph node, 1 block", "us", 0.86, 0.85, 0.875),
        Limit("memory_copy", "memory copy, read and written", "GB/s", 4240.0, 4200.0, 4260.0),
    ]
    return LimitsRecord(Chip(132, 60 << 20, 64 << 20), rows, {"cluster barrier, 2 blocks": "needs sm_90"}, 4.5)


def unprofiled_results() -> Results:
    """A run on a GPU: most rows passed, two in bfloat16; one each failed, crashed, was skipped, cut, throttled."""
    run = Results(
        created="2026-11-20T10:00:00Z",
        command="python run_ladder.py --stages all --hidden 256",
        environment={
            "gpu": {"name": "NVIDIA H200", "driver": "580.65", "max_sm_mhz": None},
            "cpu": {"model": "a | b", "flags": ["c", "d"]},
            "python": "3.12.3",
            "libraries": {"numpy": "2.3.1", "cuda-toolkit": "13.0.2", "cupy-cuda13x": "14.2.0", "torch": "2.11.0"},
            "code": {"git_commit": "0123456789abcdef0123456789abcdef01234567", "uncommitted_changes": False},
        },
        problem=problem(),
        settings=Settings(rounds=2, repeats=3, warmups=1, budget_s=10.0, timeout_s=300.0),
        stages=[
            _passed("numpy", "NumPy", 0.6, group="reference", device="cpu", detail="2 BLAS threads", shortened=True),
            _passed(
                "torch-eager", "PyTorch eager", 0.2, group="reference", drift=3e-8, memory_mib=1013.6
            ),
            _passed("torch-eager-cpu", "PyTorch eager", 0.4, group="reference", device="cpu", drift=4e-8),
            _passed(
                "torch-amp", "PyTorch AMP", 0.1, group="reference", precision="bfloat16", drift=5e-5, prepare_s=125.0
            ),
            _passed("jax-scan", "JAX lax.scan, unrolled", 0.025, group="reference", drift=3e-8, memory_mib=1946.0),
            _passed("naive", "Hand-written kernels", 0.04, prepare_s=2.25, drift=2e-7),
            _passed("async", "Asynchronous metrics", 0.02, "naive", "metrics: AsyncMetrics", drift=2e-7),
            _passed(
                "cublas", "cuBLAS GEMM", 0.0172, "async", "gemm: CublasGemm", throttle=["power"], drift=9e-8,
            ),
            _other(
                "sparse-metrics", "failed", "first update of weight[0]: 1.0e-02 is above 3.0e-06", "cublas",
                "metrics: SparseMetrics", device="gpu",
                checks=[
                    Check("first update, weight[0]", 1.0e-2, 3.0e-6, passed=False),
                    Check("loss curve", None, 1.0e-3, passed=False),
                ],
            ),
            _other(
                "cuda-graph", "crashed", "the worker ended with signal 9 (SIGKILL)\nin run 3", "sparse-metrics",
                "launch: GraphLaunch", device="gpu",
            ),
            _other(
                "persistent", "skipped", "needs sm_100 or newer, this GPU is sm_90; try persistent-grid", "cuda-graph",
                "launch: PersistentEpoch",
            ),
            _passed(
                "bf16-gemm", "Tensor cores", 0.0215, "cublas", "gemm: Bf16Gemm", group="beyond", precision="bfloat16",
                drift=5e-5, found="It was slower.", sparse=True,
            ),
        ],
        oracle=OracleRecord(0.9763, ORACLE_CURVE),
    )  # fmt: skip
    return with_earlier_words(run)


def with_processes(run: Results, name: str, steps_us: list[float], seen_us: list[float] | None = None) -> Results:
    """The run with processes of one stage, by their times of a step and the times that a profile saw."""
    timing = next(stage for stage in run.stages if stage.name == name).timing
    assert timing is not None
    steps = timing.epochs * timing.steps_per_epoch
    seen = [Split(us, 0, 0, 0, 0) for us in seen_us] if seen_us else [None] * len(steps_us)
    processes = [
        Process(round_, 0.1, [], [us * steps / 1e6], None, [], seen=seen[round_]) for round_, us in enumerate(steps_us)
    ]
    return replace_stage(run, name, processes=processes)


def deeper_results() -> Results:
    """The run on a deeper network, without PyTorch."""
    run = results()
    stages = [stage for stage in run.stages if not stage.name.startswith("torch-")]
    return replace(run, problem=replace(run.problem, hidden=[128, 128, 128]), stages=stages)


def long_names() -> Results:
    """The run with a reference, and a rung with its parent, whose names and titles are as long as any."""
    run = replace_stage(
        results(), "torch-eager", name="torch-dataloader", title="PyTorch eager, includes its data loader"
    )
    run = replace_stage(run, "async", name="persistent-cluster")
    return replace_stage(run, "cublas", name="parallel-branches", below="persistent-cluster")


def synthetic_results() -> Results:
    """A run on a machine without a GPU and without MNIST."""
    run = unprofiled_results()
    digits = replace(
        run.problem,
        dataset="synthetic digits",
        is_mnist=False,
        dataset_source="drawn by seed 0; no MNIST: not in the cache, and offline",
    )
    numpy_row = next(stage for stage in run.stages if stage.name == "numpy")
    rungs = [
        _other("naive", "skipped", "no CUDA device", None, None),
        _other("async", "skipped", "no CUDA device", "naive", "metrics: AsyncMetrics"),
    ]
    environment = {**run.environment, "gpu": None}
    return replace(run, environment=environment, problem=digits, stages=[numpy_row, *rungs])


def nothing_passed() -> Results:
    """A run in which every row was skipped."""
    run = results()
    rungs = [_other(name, "skipped", "no CUDA device", None, None) for name in ("naive", "async")]
    return replace(run, stages=rungs, oracle=None)


def replace_stage(run: Results, name: str, /, **changes: object) -> Results:
    """The run with changed fields of one stage."""
    stages = [replace(stage, **changes) if stage.name == name else stage for stage in run.stages]
    return replace(run, stages=stages)


def _profiles() -> dict[str, list[Profile]]:
    """Profiles whose parts nearly add up to the rows' times, for `cublas` less nearly."""
    naive, cublas = own_kernels(), own_kernels(CUBLAS, 12.0)
    by_name: list[KernelUse] = [kernel(f"elementwise_kernel_{number}", "other", 4.0, blocks=98) for number in range(23)]
    scanned = [kernel("loop_add_fusion", "fused", 5.0, place) for place in range(4)]
    waits, flows, graph = Split(38.0, 1.0, 6.0, 20.0, 20.0), Split(36.0, 0.0, 4.0, 2.5, 0.1), Split(26, 0, 8, 1.2, 0.1)
    return {
        "naive": [
            profile(waits, naive, reads=True),
            profile(replace(waits, kernels_us=37.5), naive, tool="nsys", slowdown=0.3, reads=True),
        ],
        "async": [profile(flows, naive)],
        "cublas": [
            profile(graph, cublas, tool="nsys", as_graph=True, slowdown=0.0),
            profile(
                replace(graph, kernels_us=24.0), cublas, as_graph=True, slowdown=0.02,
                kernels_per_step=8.5,
            ),
        ],
        "bf16-gemm": [profile(Split(24.0, 0.0, 8.0, 12.5, 0.1), cublas, tool="nsys")],
        "torch-eager": [profile(Split(92.0, 0.0, 2.0, 333.0, 0.0), by_name, slowdown=0.4)],
        "jax-scan": [profile(Split(20.0, 0.0, 33.0, 0.4, 0.0), scanned, as_graph=True)],
    }  # fmt: skip


def problem() -> ProblemRecord:
    return ProblemRecord(
        dataset="MNIST",
        is_mnist=True,
        dataset_source="download",
        dataset_sha256={"train-images-idx3-ubyte": "ba891046e6505d7a" + "0" * 48},
        train_images=60000,
        test_images=10000,
        inputs=784,
        hidden=[256],
        classes=10,
        batch_size=128,
        learning_rate=0.1,
        epochs=EPOCHS,
        seed=0,
        metrics_every=10,
    )


def _passed(
    name: str,
    title: str,
    epoch_s: float,
    below: str | None = None,
    changed: str | None = None,
    *,
    group: Group = "ladder",
    precision: Precision = "float32",
    device: str = "gpu",
    detail: str = "",
    prepare_s: float = 0.31,
    shortened: bool = False,
    throttle: list[str] | None = None,
    drift: float = 0.0,
    memory_mib: float = 709.6,
    found: str = "",
    sparse: bool = False,
) -> StageResult:
    epochs = 3 if shortened else EPOCHS
    runs = [epoch_s * epochs * factor for factor in ((1.0, 1.02) if shortened else (0.99, 1.0, 1.05))]
    state = GpuState(sm_mhz=1980, temperature_c=45, power_w=312.5, throttle_reasons=throttle or [])
    process = Process(
        round=0,
        prepare_s=prepare_s,
        warmups_s=[runs[0]],
        runs_s=runs,
        gpu_runs_s=[run * 0.9 for run in runs] if device == "gpu" else None,
        gpu_states=[state] if device == "gpu" else [],
        gpu_memory_mib=memory_mib if device == "gpu" else None,
    )
    curve = [
        LossPoint(point.epoch, (point.loss or 0.0) * (1 + drift * point.epoch), point.accuracy)
        for point in ORACLE_CURVE[:epochs]
        if not sparse or point.epoch % 10 == 0
    ]
    return StageResult(
        name=name,
        title=title,
        group=group,
        below=below,
        changed=changed,
        precision=precision,
        status="passed",
        device="cpu" if device == "cpu" else "gpu",
        detail=detail,
        doc=StageDoc(f"Why {name} is there.", f"What {name} changes.", f"What {name} is expected to gain.", found),
        timing=Timing.of([process], epochs=epochs, steps_per_epoch=STEPS, shortened=shortened),
        checks=[
            Check("first update, weight[0]", 3.4e-7, 3.0e-6, passed=True),
            Check("test accuracy", 2.0e-4, 3.0e-3, passed=True),
            Check("loss curve", drift * epochs, 1.0e-5 if precision == "float32" else 5.0e-3, passed=True),
        ],
        metrics=Metrics(0.9762, curve[-1].loss, curve),
        processes=[process],
    )


def _other(
    name: str,
    status: Status,
    reason: str,
    below: str | None,
    changed: str | None,
    *,
    device: str | None = None,
    checks: list[Check] | None = None,
) -> StageResult:
    return StageResult(
        name=name,
        title=name.replace("-", " ").capitalize(),
        group="ladder",
        below=below,
        changed=changed,
        precision="float32",
        status=status,
        reason=reason,
        device="gpu" if device == "gpu" else None,
        doc=StageDoc(f"Why {name} is there.", f"What {name} changes.", f"What {name} is expected to gain."),
        checks=checks or [],
    )
