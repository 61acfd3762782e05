"""What runs say that differ from the sample in one thing: the lines that they add to its screens and documents."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace as with_fields
from functools import cache, partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ladder.records.expectation import Expected
from ladder.records.limits_record import SHARED
from ladder.records.profile import CallUse, CopyUse, FirstCalls, Split
from ladder.records.program import PROGRAM
from ladder.records.run import (
    Check,
    Energy,
    LossPoint,
    OracleRecord,
    PartRecord,
    Results,
    StageCode,
    StageDoc,
    load,
)
from reports.facts.hidden_copies import overlap
from reports.facts.run_differences import cannot_compare, differences
from reports.facts.run_table import caption
from reports.facts.time_breakdown import profiled
from reports.report_error import ReportError
from reports.screens.conclusion import found, try_next
from reports.screens.details import details
from reports.screens.run import report_screen, run_screen
from reports.screens.rung import rung_screen
from reports.writers.markdown import in_markdown, markdown
from reports.writers.terminal import write_terminal
from tests.reports import recorded, sample
from tests.reports.profiles import own_kernels, profile
from tests.reports.terminal.screens import screen

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
NARROW, WIDE = 80, 250
HERE = "784-256-10, batch 128"
SAMPLE = sample.results()
STAGES = {stage.name: stage for stage in SAMPLE.stages}


def scenarios() -> str:
    """The text of `scenarios.txt`."""
    parts = [*_runs().items(), *_explained().items(), *_others()]
    told = ["\n".join([title, *(f"  {line}" for line in lines if line)]) for title, lines in parts]
    return "\n\n".join(told).replace(PROGRAM, "python run_ladder.py") + "\n"


def _lines(run: Results) -> list[str]:
    """The rows and the sentences of a run: of the terminal, its report, its details and its caption, without blanks."""
    texts = (
        *(screen(partial(write_terminal, run_screen(run)), width) for width in (NARROW, WIDE)),
        markdown(report_screen(run)),
        in_markdown(details(run)), caption(run), found(run),
    )  # fmt: skip
    lines = (" ".join(raw.split()) for text in texts for raw in text.splitlines())
    sentences = (part for line in lines for part in (re.split(r"(?<=[.;]) ", line) if line[:1] != "|" else [line]))
    return [part for part in sentences if re.search(r"\w", part)]


@cache
def _known() -> Counter[str]:
    return Counter(_lines(SAMPLE))


def _added(run: Results) -> list[str]:
    """The lines that a run adds to the sample's, and how many it lacks."""
    own = Counter(_lines(run))
    return [*(own - _known()), f"lines that it lacks: {(_known() - own).total()}"]


def _with(*changed: str, run: Results = SAMPLE, **changes: Any) -> Results:
    for name in changed:
        run = sample.replace_stage(run, name, **changes)
    return run


def _processes(name: str, *changes: Mapping[str, object], **others: Any) -> Results:
    """The sample with a stage of so many processes, each like its first but for some changes."""
    first = STAGES[name].processes[0]
    return _with(name, processes=[replace(first, round=n, **one) for n, one in enumerate(changes)], **others)


def _timing(name: str, **changes: object) -> object:
    timing = STAGES[name].timing
    assert timing is not None
    return replace(timing, **changes)


def _environment(**changes: object) -> Results:
    return replace(SAMPLE, environment={**SAMPLE.environment, **changes})


def _runs() -> dict[str, list[str]]:
    busy, calm = {"disturbed": ["other work"]}, dict[str, object]()
    moved, still = ({**busy, "runs_s": [STAGES["async"].processes[0].runs_s[0] * by]} for by in (1.03, 1.01))
    note = "float32 cannot decide here"
    spare = STAGES["naive"].processes[0]
    undecided = Check("loss curve", None, 0.9, passed=True, judged=False, note=note)
    partly = replace(undecided, judged=True)
    unreached = replace(undecided, limit=0.0, note="it has one run")
    cut = replace(unreached, note="the oracle's time ended after epoch 1 of 20")
    frames = [replace(one, seen=replace(one.seen, kernels_us=40.0)) for one in STAGES["naive"].profiles]
    asked = replace(sample.unprofiled_results(), settings=replace(SAMPLE.settings, profile=["cupti"]))
    unprofiled = _with("naive", "async", run=asked, unprofiled={"cupti": "cupti-python is not installed"})
    clockless = replace(SAMPLE, limits=None)
    for stage in SAMPLE.stages:
        states = [replace(process, gpu_states=[]) for process in stage.processes]
        clockless = _with(stage.name, run=clockless, processes=states, bounds=None)
    noisy = recorded.run(
        recorded.stage("naive", recorded.times(50.0, scatter=0.1)), recorded.stage("async", [40.0] * 8)
    )
    noisy = replace(noisy, created=SAMPLE.created)  # recorded.run counts seconds
    few = [stage for stage in SAMPLE.stages if stage.group != "reference"]
    own = [stage for stage in SAMPLE.stages if stage.group == "reference"]
    rough = [stage for stage in SAMPLE.stages if stage.name in ("naive", "torch-amp")]
    runs = {
        "one of two processes was disturbed": _processes("async", busy, calm),
        "one of three was disturbed": _processes("async", busy, calm, calm),
        "all were disturbed, and it was shortened": _processes("numpy", busy, busy),
        "a disturbed process took 3 % longer": _processes("async", calm, moved),
        "a disturbed process took 1 % longer": _processes("async", calm, still),
        "some were set aside": _processes("naive", calm, busy, set_aside=[replace(spare, **busy)]),
        "processes differ by 6 %": _processes(
            "cublas", calm, {"runs_s": [s * 1.06 for s in STAGES["cublas"].processes[0].runs_s]}
        ),
        "processes tell different details": _processes("numpy", {"detail": "2 threads"}, {"detail": "1 thread"}),
        "expected to lose": _with("async", expected=Expected(66.2, 0.08, "NVIDIA H200", 0.8, "naive", 53.4)),
        "expected to win": _with("async", expected=Expected(66.2, 0.08, "NVIDIA H200", 1.2)),
        "rounding decides a check": _with("async", checks=[undecided]),
        "rounding decides some tensors": _with("async", checks=[partly]),
        "a check that had no occasion": _with("async", checks=[unreached]),
        "rounding decides, and it failed": _with("async", checks=[undecided], status="failed", reason="wrong"),
        "a slow oracle left out checks": _with("async", checks=[cut, unreached, replace(cut, what="final parameters")]),
        "a slow oracle, and a long name": _with("persistent-cluster", run=sample.long_names(), checks=[cut]),
        "nothing was timed": replace(
            SAMPLE, stages=[replace(stage, timing=None) for stage in SAMPLE.stages if stage.status == "passed"]
        ),
        "nothing passed": sample.nothing_passed(),
        "two reasons to skip": _with(
            "naive", run=_with("async", run=sample.synthetic_results(), reason="needs sm_90"), reason="Needs clusters."
        ),
        "many were skipped": _with(
            *list(STAGES)[:7], status="skipped", reason="no CUDA device.", timing=None, profiles=[]
        ),
        "a failed stage without a docstring": _with("cuda-graph", doc=None),
        "a reason like HTML": _with("cuda-graph", reason="<unknown error> in `vector<float>`"),
        "no profiles": unprofiled,
        "limits were not measured beside others": replace(
            SAMPLE, limits=replace(sample.limits(), skipped={"graph node, 1 block": SHARED})
        ),
        "no clock and no limits": clockless,
        "kernels were seen for longer": _with("naive", profiles=frames),
        "a change within the noise": _with("async", timing=STAGES["naive"].timing),
        "in tf32": _with("async", precision="tf32"),
        "two without profiles": _with("async", "bf16-gemm", profiles=[]),
        "shortened alike": _with("naive", "async", timing=_timing("naive", shortened=True)),
        "other data": replace(
            SAMPLE, problem=replace(SAMPLE.problem, dataset="fashion", is_mnist=False, dataset_source="--data-dir")
        ),
        "synthetic data": sample.synthetic_results(),
        "not known to 2 %": replace(noisy, settings=replace(noisy.settings, precision=0.02)),
        "known to 20 %": replace(noisy, settings=replace(noisy.settings, precision=0.2)),
        "NVML does not tell": _environment(gpu_does_not_tell=["power", "throttling"]),
        "locked at its clock": replace(SAMPLE, settings=replace(SAMPLE.settings, lock_clocks_mhz=1980)),
        "locked at another clock": replace(SAMPLE, settings=replace(SAMPLE.settings, lock_clocks_mhz=1500)),
        "a reference failed": _with("jax-scan", status="failed", reason="loss curve"),
        "a slower reference crashed": _with("torch-eager", status="crashed", reason="out of memory"),
        "a reference was skipped": _with("torch-eager-cpu", status="skipped", reason="no wheel"),
        "no reference": replace(SAMPLE, stages=few),
        "references alone": replace(SAMPLE, stages=own),
        "a rougher reference alone": replace(SAMPLE, stages=rough),
        "the parent failed": _with("naive", status="failed", reason="first\nupdate", metrics=None),
        "the oracle trained on the GPU": replace(SAMPLE, oracle=OracleRecord(0.9, [], None, "gpu", "no room")),
        "the oracle trained on the CPU": replace(SAMPLE, oracle=OracleRecord(0.9, [], None, "cpu", "no CUDA device")),
        "the parts of its time": replace(
            SAMPLE, seconds=100.0, took_s={"checking": 0.4, "compiling": 20.0, "stages' processes": 61.0}
        ),
        "a flat environment": replace(
            SAMPLE, environment={"gpu": "H200", "cpu": None, "ok": False, "cpus": ["a", "b"]}
        ),
        "no environment": replace(SAMPLE, environment={}),
        "uncommitted changes": _environment(code={"git_commit": "f" * 40, "uncommitted_changes": True}),
        "libraries of the CPU alone": replace(
            _environment(libraries={"cuda-toolkit": "13.5", "numba": "0.68", "torch": "2.13"}),
            stages=[replace(STAGES["naive"], device="cpu", group="cpu")],
        ),
        "four networks": replace(SAMPLE, problem=replace(SAMPLE.problem, networks=4)),
        "ablations": ablations(),
        "one difference within the noise": _with(
            "bf16-gemm", timing=STAGES["cublas"].timing, processes=STAGES["cublas"].processes
        ),
        "a prediction was hit": _processes("async", busy, doc=StageDoc("w", "c", "e", predict=f"{HERE}: 40 us.")),
        "a prediction was missed": _with("async", doc=StageDoc("w", "c", "e", predict=f"{HERE}: 2.2 x of naive.")),
        "the fastest rung is less exact": _with("async", "cublas", status="failed", reason="x"),
        "energy was measured": _spent({"async": 0.4, "cublas": 0.5}),
        "energy beside references'": _spent({"async": 0.4, "jax-scan": 1.2, "torch-amp": 0.9}),
        "energy was asked for": _processes("async", {"no_energy": "it stands still"}),
    }  # fmt: skip
    return {title: _added(run) for title, run in runs.items()}


def _spent(joules: Mapping[str, float]) -> Results:
    """The sample with the energy of these stages; `async` reaches 90 % in its fourth epoch, and no other does."""
    run = replace(SAMPLE, settings=replace(SAMPLE.settings, energy=True, target_accuracy=0.9))
    for name, spent in joules.items():
        first, metrics = STAGES[name].processes[0], STAGES[name].metrics
        assert metrics is not None
        best = 0.93 if name == "async" else 0.89
        seen = [LossPoint(epoch, 0.3, best - 0.1 / epoch) for epoch in range(1, 6)]
        drawn = replace(first, energy=Energy(spent, 300.0, 120.0, 5.1))
        run = _with(name, run=run, processes=[drawn], metrics=replace(metrics, validation=seen))
    return run


def ablations() -> Results:
    """The sample with rungs that allocate and copy in several ways."""
    calls = [CallUse("cudaMalloc", 1872.0, 9.0), CallUse("cudaFree", 1872.0, 11.5), CallUse("cudaMemcpyAsync", 468, 7)]
    each = profile(Split(30.0, 4.0, 2.0, 8.0, 6.0), own_kernels())
    first = FirstCalls({"cudaMalloc": 11, "cudaFree": 4}, {"cudaMalloc": 1872, "cudaFree": 1872})
    pair = {"cudaFree": 1872.0, "cudaMalloc": 1872.0}
    freeing = replace(each, allocations_per_epoch=pair, first_calls=first, calls=calls, syncs_per_epoch=468.0)
    copying = replace(each, copies=[CopyUse("host to device", 468.0, 188e6, 10.0, 2.5)], calls=calls)
    rungs = [
        replace(STAGES["async"], name=name, title=title, group=group, below=below, changed="X", profiles=[own])
        for name, title, group, below, own in (
            ("alloc-cudamalloc", "By cudaMalloc", "memory", "naive", freeing),
            ("alloc-arena", "Once", "memory", "alloc-cudamalloc", replace(each, first_calls=FirstCalls({}, {}))),
            ("pinned", "From pinned memory", "data", "naive", copying),
            ("resident-f32", "On the GPU", "data", "pinned", each),
        )
    ]
    return replace(SAMPLE, stages=[*rungs, *SAMPLE.stages])


def _explained() -> dict[str, list[str]]:
    """What `explain` says of a stage."""
    why = {"cupti": "CUPTI is\nnot installed"}
    command = "python run_ladder.py --stage-file 'my stage.py' --epochs 3"
    two = replace(SAMPLE, command=command, problem=replace(SAMPLE.problem, gpus=2))
    slower = sample.with_processes(_with("cublas", timing=_timing("cublas", step_us=90.0)), "cublas", [90.0] * 2)
    busy = [replace(STAGES["numpy"].processes[0], disturbed=["other work"])]
    recipe = [PartRecord("gemm", "CublasGemm", "stages/x.py"), PartRecord("launch", "OneByOne", "stages/y.py")]
    asked = {
        "explain: the difference turns round": (slower, "cublas"),
        "explain: a recipe": (_with("cublas", recipe=recipe), "cublas"),
        "explain: without a profile": (_with("torch-amp", run=two, below="naive", unprofiled=why), "torch-amp"),
        "explain: on the CPU": (SAMPLE, "numpy"),
        "explain: disturbed": (_with("numpy", below="naive", processes=busy), "numpy"),
        "explain: of four networks": (replace(SAMPLE, problem=replace(SAMPLE.problem, networks=4)), "numpy"),
        "explain: a misspelt name": (SAMPLE, "cublass"),
        "explain: no such name": (SAMPLE, "qqq"),
        "explain: it crashed": (replace(SAMPLE, command=command), "cuda-graph"),
        "explain: it was skipped": (SAMPLE, "persistent"),
        "explain: no time": (_with("naive", timing=None), "naive"),
    }
    return {title: list(_explanation(run, name)) for title, (run, name) in asked.items()}


def _explanation(run: Results, name: str) -> Iterator[str]:
    try:
        shown = screen(partial(write_terminal, rung_screen(run, name)), WIDE)
    except ReportError as error:
        shown = str(error)
    yield from filter(None, (" ".join(line.split()) for line in shown.splitlines()))


def _others() -> Iterator[tuple[str, list[str]]]:
    yield "differences of two runs", list(_differences())
    yield "what to do next", list(_next_steps())
    yield "copies that are hidden or not", list(_overlaps())


def _differences() -> Iterator[str]:
    commit, problem = SAMPLE.environment["code"], SAMPLE.problem
    libraries = {"numpy": "2.3.1", "cupy-cuda13x": "14.2.0", "torch": "2.12.0", "jax": "0.11"}
    hashed = [replace(stage, code=StageCode("a", None, scheme=2)) for stage in SAMPLE.stages]
    then, now = replace(SAMPLE, stages=hashed), replace(_environment(code={"git_commit": "f"}), stages=hashed)
    other = replace(now, stages=[replace(hashed[0], code=StageCode("b", None, scheme=2)), *hashed[1:]])
    clocks = [_environment(gpu_clocks={"sm_mhz": 345, "application_sm_mhz": mhz}) for mhz in (1830, 1980)]
    environments: Iterable[dict[str, Any]] = (
        {"gpu": {"name": "NVIDIA A100", "driver": "580.65"}}, {"gpu": {"name": "NVIDIA H200", "driver": "570.1"}},
        {"cpu": {"model": "<b> | c"}}, {"blas": {"threads": 4}}, {"libraries": libraries},
        {"code": {"git_commit": None}}, {"code": {"git_commit": "0123456789" * 4, "uncommitted_changes": False}},
        {"code": {**commit, "uncommitted_changes": True}}, {"gpu": None, "cpu": "x", "libraries": [], "code": 3},
    )  # fmt: skip
    data = {"dataset_sha256": {"train": "1"}, "dataset": "other", "is_mnist": False}
    problems: Iterable[dict[str, Any]] = ({"learning_rate": 0.2}, {"epochs": 10}, data)
    pairs = [
        (SAMPLE, SAMPLE), *((SAMPLE, _environment(**one)) for one in environments),
        *((SAMPLE, replace(SAMPLE, problem=replace(problem, **one))) for one in problems),
        (_environment(code={**commit, "uncommitted_changes": True}), SAMPLE), (then, now), (then, other),
        (then, replace(now, stages=[])), (clocks[0], clocks[1]), (SAMPLE, clocks[1]),
        (SAMPLE, replace(SAMPLE, settings=replace(SAMPLE.settings, lock_clocks_mhz=1500))),
    ]  # fmt: skip
    yield from (" ".join(differences(*pair)) or "no difference" for pair in pairs)
    for changes in ({"hidden": [128, 128]}, {"batch_size": 256}, {}):
        yield cannot_compare(SAMPLE, replace(SAMPLE, problem=replace(problem, **changes))) or "can be compared"


def _next_steps() -> Iterator[str]:
    """The command that follows a run, for a stage of the user's file and for ones that broke."""
    gpu, cpu = (load(REFERENCE / folder / "logistic" / "results.json.gz") for folder in ("h200", "amd-epyc-2-cores"))
    *_, one, two = (stage.name for stage in cpu.stages)
    given = f"{PROGRAM} --stages numpy --stage-file 'a b.py' --hidden 8 --rounds 1 --stage-file=c.py --batch-size=16"
    own = replace(gpu, command=f"{PROGRAM} --stages all --stage-file=my_rung.py")
    runs = [gpu, own, replace(gpu, command='an open " quote'), _with("async", run=own, status="crashed", reason="no")]
    for names, timed in (((one,), False), ((two,), False), ((one, two), False), ((two,), True), (("numpy",), False)):
        processes = cpu.stages[0].processes if timed else []
        changes = {"status": "failed", "reason": "no reason", "processes": processes}
        runs.append(_with(*names, run=replace(cpu, command=given), **changes))
    for run in runs:
        yield try_next(run, Path("runs/one"), None).replace("\N{NO-BREAK SPACE}", " ")
    disturbed = _with("naive", run=gpu, processes=[replace(p, disturbed=["x"]) for p in _of(gpu, "naive").processes])
    yield found(disturbed)


def _of(run: Results, name: str) -> Any:
    return next(stage for stage in run.stages if stage.name == name)


def _overlaps() -> Iterator[str]:
    """How much of its copies a rung hides, and why not more."""
    pinned = profiled(_of(ablations(), "pinned"))
    assert pinned is not None
    for hidden, split in (
        (0.0, Split(30.0, 10.0, 0.0, 8.0, 0.0)), (8.0, Split(30.0, 2.0, 0.0, 8.0, 0.0)),
        (0.5, Split(18.0, 9.5, 0.0, 19.0, 1.0)), (4.0, Split(4.5, 6.0, 0.0, 1.0, 0.0)),
        (4.0, Split(14.5, 6.0, 0.0, 1.0, 0.0)),
    ):  # fmt: skip
        copies = [CopyUse("host to device", 468.0, 188e6, 10.0, hidden)]
        fitted = replace(split, kernels_us=split.kernels_us / 2)
        own = replace(pinned.profile, copies=copies, split=fitted, seen=split)
        yield overlap(with_fields(pinned, profile=own)) or "nothing"
