"""Records results/reference/<machine>/: networks of tools/networks.toml or studies of experiments/, here or by Slurm.

    python -m tools.record [NAME ...] [OPTION ...]
    python -m tools.record torch [MODEL ...] [OPTION ...]
    python -m tools.record plan [FOLDER]

Without a name it runs GPU tests and records the first three networks. `studies` means every study; `all` means
networks and studies, the oldest record first. `--within SECONDS` takes as many of them as fit, by what their records
took, so that repeated calls go through all. `plan` prints this order and these times for a GPU's folder, by default
`h200`. Options are those of `study`, such as `--on slurm --slurm partition=gpu`; several GPUs of this host are used at
once anyway. Run it from a committed tree.
After the word `cpu`, names are networks of tools/cpu_networks.toml: the CPU rungs and references of this host.
After the word `torch`, names are models of examples/torch/, all of them by default; options are those of `torch`.
An interrupted recording continues, and old records stay until all is measured. At the end it names what to commit.
Exits with 1 if a stage failed or crashed, as the record shows, too.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from common.cuda.driver import devices
from ladder.options.commands import Torch
from ladder.records import torch_run
from ladder.records.run import Results, all_results, load
from ladder.records.study import INDEX
from ladder.study.study_file import read_study
from ladder.torch_model import export

ROOT = Path(__file__).parents[1]
NETWORKS, CPU_NETWORKS = Path("tools/networks.toml"), Path("tools/cpu_networks.toml")
POINTS = {"logistic": "hidden-none"}  # others are called like their points
DEFAULT = ("logistic", "hidden-256", "hidden-128-128-128")
KNOWN = (*DEFAULT, "hidden-1024", "hidden-784-784-784-784", "hidden-4096-4096-4096")
REFERENCE = Path("results/reference")
MEASURED = Path("runs/record")  # ignored by git, so that every record says that its tree was clean
LONGEST = ("hidden-size", "batch-size", "depth", "cpp-mlp", "loss-curves")  # begun first


class Kept(NamedTuple):
    """A record of a network or a study."""

    created: str
    name: str
    points: int
    processes: int
    seconds: float


def kept_records(root: Path, gpu: str) -> list[Kept]:
    """The records in a GPU's folder of what would be recorded today, oldest first."""
    files = (root / "experiments").glob("*.toml")
    planned = {file.stem: {point.name for point in read_study(file, "", "").points} for file in files}
    runs: dict[str, list[Results]] = {}
    for file in all_results(root / REFERENCE / gpu, "**"):
        kind, name, *_ = file.relative_to(root / REFERENCE / gpu).parts
        if kind == "studies" and file.parent.name not in planned.get(name, ()):
            continue
        runs.setdefault(name if kind == "studies" else kind, []).append(load(file))
    return sorted(
        Kept(
            max(run.created for run in each),
            name,
            len(each),
            sum(len(stage.processes) for run in each for stage in run.stages),
            sum(run.seconds or 0.0 for run in each),
        )
        for name, each in runs.items()
    )


def plan(root: Path, gpu: str) -> list[str]:
    """The lines of a table of these records, with the seconds of each and of all so far."""
    lines, total = ["| Record | Points | Processes | Seconds | In all |", "| --- " + "| ---: " * 4 + "|"], 0.0
    for kept in kept_records(root, gpu):
        total += kept.seconds
        lines.append(f"| {kept.name} | {kept.points} | {kept.processes} | {kept.seconds:.0f} | {total:.0f} |")
    return lines


def oldest(root: Path, gpu: str, names: Sequence[str], within_s: float) -> list[str]:
    """These names by the age of their record, those without one first, as far as they fit; at least one."""
    known = {kept.name: kept for kept in kept_records(root, gpu)}
    chosen, total = list[str](), 0.0
    for name in sorted(names, key=lambda name: known[name].created if name in known else ""):
        total += known[name].seconds if name in known else 0.0
        if chosen and total > within_s:
            break
        chosen.append(name)
    return chosen


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Record what the command line names; returns the exit status."""
    if list(argv[:1]) == ["torch"]:
        return _own_models(argv[1:], root)
    if list(argv[:1]) == ["plan"]:
        print(*plan(root, argv[1] if len(argv) > 1 else "h200"), sep="\n")
        return 0
    first_option = next((number for number, word in enumerate(argv) if word.startswith("-")), len(argv))
    on_cpu = list(argv[:1]) == ["cpu"]
    names, options = list(argv[on_cpu:first_option]) or list(DEFAULT), list(argv[first_option:])
    every = sorted(path.stem for path in (root / "experiments").glob("*.toml"))
    every.sort(key=lambda name: LONGEST.index(name) if name in LONGEST else len(LONGEST))
    within_s = math.inf
    if "--within" in options:
        at = options.index("--within")
        _, value, *_ = [*options[at : at + 2], ""]
        if not value.isdigit():
            return _refuse(f"--within {value}: takes seconds")
        within_s = float(value)
        del options[at : at + 2]
    if names == ["all"]:
        gpu = slug_of(devices()[0].name) if devices() else ""
        names = oldest(root, gpu, [*KNOWN, *every], within_s)
    names = [study for name in names for study in (every if name == "studies" else [name])]
    if unknown := [name for name in names if name not in (*KNOWN, *every)]:
        return _refuse(f"there is no network or study {unknown[0]}")
    if on_cpu and (unknown := [name for name in names if name not in DEFAULT]):
        return _refuse(f"there is no network {unknown[0]} for a CPU; choose from {', '.join(DEFAULT)}")
    if on_cpu and devices():
        return _refuse("cpu: PyTorch and JAX would use this machine's GPU; set CUDA_VISIBLE_DEVICES=-1")
    engine = _engine(options)
    elsewhere = on_cpu or engine == "slurm"
    if not elsewhere and not devices():
        return _refuse("no NVIDIA GPU here; `python -m tools.record cpu` records the CPU")
    if engine is None and len(devices()) > 1:
        options += ["--on", "local"]
    networks, studies = ([name for name in names if (name in KNOWN) is which] for which in (True, False))
    untested = networks and not elsewhere and not (root / MEASURED / "networks").exists()
    if untested and subprocess.call([str(root / "tools" / "test_gpu.sh"), sys.executable], cwd=root):
        return 3
    worst = 0
    points = ["--points", ",".join(POINTS.get(name, name) for name in networks)]
    jobs = [("networks", CPU_NETWORKS if on_cpu else NETWORKS, points)] if networks else []
    for name, file, chosen in [*jobs, *((name, Path("experiments", f"{name}.toml"), []) for name in studies)]:
        folder = MEASURED / name
        begun = (
            ["--resume", str(folder)]
            if (root / folder).exists()
            else [str(file), "--out", str(folder), "--tune-references"]
        )
        status = _ladder(root, "study", *begun, *chosen, *options)
        if status > 1:
            return status
        worst = max(worst, status)
    records = [*_runs_of(root, networks), *_studies_of(root, studies)]
    others = (place for place, _ in records for run in place.rglob("results.json") if not load(run).problem.is_mnist)
    if synthetic := next(others, None):
        drawn = synthetic.relative_to(root)
        return _refuse(f"{drawn}: is not of MNIST; delete {MEASURED}, and set $LADDER_DATA_DIR to its four files")
    for measured, kept in records:
        _keep(measured, kept)
        if kept.name in networks:
            _ladder(root, "report", str(kept))
    for name in ("networks", *studies):
        shutil.rmtree(root / MEASURED / name, ignore_errors=True)
    print("record: to add these records, look at their figures, then")
    print("    python run_ladder.py readme")
    print(f"    git add README.md docs {' '.join(str(kept.relative_to(root)) for _, kept in records)}")
    print("and commit; `pytest tests/recorded` is what the pull request's checks say of them")
    return worst


def _own_models(argv: Sequence[str], root: Path) -> int:
    """Record the ladder over each example of a PyTorch model; returns the exit status."""
    examples = {path.stem: path for path in sorted((root / "examples" / "torch").glob("*.py"))}
    first_option = next((number for number, word in enumerate(argv) if word.startswith("-")), len(argv))
    names, options = list(argv[:first_option]) or list(examples), list(argv[first_option:])
    if unknown := [name for name in names if name not in examples]:
        return _refuse(f"there is no example {unknown[0]}; choose from {', '.join(examples)}")
    worst, kept = 0, []
    for name in names:
        folder = MEASURED / "torch" / name
        begun = ["--resume", str(folder)] if (root / folder / torch_run.FILE).exists() else ["--out", str(folder)]
        status = _ladder(root, "torch", str(examples[name].relative_to(root)), *begun, *options)
        if status > 1:
            return status
        worst = max(worst, status)
        results = torch_run.load(root / folder)
        kept.append(root / REFERENCE / slug(results) / "torch" / name)
        _keep(root / folder, kept[-1])
        export.write(Torch(model=examples[name]), results, kept[-1])  # which name the model's folder from there
    print("record: to add these records, look at their figures, then")
    print("    python run_ladder.py readme")
    print(f"    git add README.md docs {' '.join(str(folder.relative_to(root)) for folder in kept)}")
    return worst


def _engine(options: Sequence[str]) -> str | None:
    """The value of `--on VALUE` or `--on=VALUE`."""
    words = [part for word in options for part in word.split("=", 1)]
    return dict(pairwise(words)).get("--on")


def _runs_of(root: Path, networks: Sequence[str]) -> Iterator[tuple[Path, Path]]:
    """The measured run of each network, of each kind of GPU, and the folder that keeps it."""
    for name in networks:
        for run in sorted((root / MEASURED / "networks").rglob(f"{POINTS.get(name, name)}/results.json")):
            yield run.parent, root / REFERENCE / slug(load(run)) / name


def _studies_of(root: Path, studies: Sequence[str]) -> Iterator[tuple[Path, Path]]:
    """The same of studies."""
    for name in studies:
        for index in sorted((root / MEASURED / name).glob(INDEX)):
            gpu = slug(load(next(index.parent.glob("*/results.json"))))
            yield index.parent, root / REFERENCE / gpu / "studies" / name


def slug(results: Results | torch_run.TorchResults) -> str:
    """The folder of a run's GPU, or of its CPU: `h100-80gb-hbm3`, `amd-epyc-2-cores`."""
    cpu = results.environment.get("cpu", {})
    without_gpu = f"{cpu.get('model', 'CPU')} {cpu.get('cores_usable', 0)} cores"
    return slug_of(results.environment["gpu"].get("name", without_gpu))


def slug_of(name: str) -> str:
    """The folder of a GPU or CPU of this name."""
    name = name.lower()
    name = re.sub(r"nvidia |geforce |\(r\)|\(tm\)| cpu| @ [\d.]+ghz", "", name)
    return re.sub("[^a-z0-9]+", "-", name).strip("-")


def _keep(measured: Path, kept: Path) -> None:
    """Replace a record, packed and without what git does not keep."""
    for folder in [path for path in measured.rglob("*") if path.name in ("logs", "profiles", "jobs")]:
        shutil.rmtree(folder)
    shutil.rmtree(kept, ignore_errors=True)
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(measured, kept)
    for run in all_results(kept, "**"):
        subprocess.run(["gzip", "-nf", str(run)], check=True)


def _ladder(root: Path, *words: str) -> int:
    return subprocess.call([sys.executable, "run_ladder.py", *words], cwd=root)


def _refuse(reason: str) -> int:
    print(f"record: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
