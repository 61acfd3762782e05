"""Records results/reference/<machine>/: networks of tools/networks.toml or studies of experiments/, here or by Slurm.

    python -m tools.record [NAME ...] [OPTION ...]
    python -m tools.record torch [MODEL ...] [OPTION ...]
    python -m tools.record plan [FOLDER]

Without a name it runs GPU tests and records the first three networks. `studies` means every study; `all` means
networks and studies, the oldest record first. `--within SECONDS` takes as many of them as fit, by what their records
took, so that repeated calls go through all. `plan` prints this order and these times for a GPU's folder, by default
`h200`. Options are those of `study`, such as `--on slurm --slurm partition=gpu`. Run it from a committed tree.
Several GPUs of this host are used at once: each network and study has one of them and a share of the cores, and writes
to runs/record/logs/; one that needs several GPUs follows alone.
After the word `cpu`, names are networks of tools/cpu_networks.toml: the CPU rungs and references of this host.
After the word `torch`, names are models of examples/torch/, all of them by default; options are those of `torch`.
An interrupted recording continues, and old records stay until all is measured. At the end it names what to commit.
Exits with 1 if a stage failed or crashed, as the record shows, too.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from common.cuda.driver import devices
from ladder.options.commands import Torch
from ladder.records import torch_run
from ladder.records.exactness import settled
from ladder.records.run import Results, all_results, load, results_in
from ladder.records.study import INDEX
from ladder.run.orders import FEW_ROUNDS
from ladder.study.engines import local_gpus
from ladder.study.point_queue import Slot, slots
from ladder.study.study_file import read_study
from ladder.study.study_session import options_at
from ladder.torch_model import export
from stages.registry import load_all

ROOT = Path(__file__).parents[1]
NETWORKS, CPU_NETWORKS = Path("tools/networks.toml"), Path("tools/cpu_networks.toml")
POINTS = {"logistic": "hidden-none"}  # others are called like their points
DEFAULT = ("logistic", "hidden-256", "hidden-128-128-128")
KNOWN = (*DEFAULT, "hidden-1024", "hidden-784-784-784-784", "hidden-4096-4096-4096")
REFERENCE = Path("results/reference")
MEASURED = Path("runs/record")  # ignored by git, so that every record says that its tree was clean
LONGEST = ("energy", "hidden-size", "batch-size", "cpp-mlp", "depth", "fleet", "loss-curves")  # begun first
STOPS = 2  # an exit status from which on nothing more begins: wrong words, or Ctrl-C


class Recording(NamedTuple):
    """A study to measure: its file, and the folder to measure it in; of these networks alone, if any are named."""

    file: Path
    folder: Path
    networks: tuple[str, ...] = ()

    def words(self, root: Path) -> list[str]:
        """The command that begins or continues it."""
        begin = [str(self.file), "--out", str(self.folder), "--tune-references"]
        points = ["--points", ",".join(POINTS.get(name, name) for name in self.networks)] if self.networks else []
        has_begun = (root / self.folder / INDEX).exists()
        return ["study", *(["--resume", str(self.folder)] if has_begun else begin), *points]

    def gpus(self, root: Path) -> int:
        """How many GPUs one of its points needs."""
        return (
            1 if self.networks else max(p.settings.get("gpus", 1) for p in read_study(root / self.file, "", "").points)
        )


class Kept(NamedTuple):
    """A record of a network or a study."""

    created: str
    name: str
    points: int
    processes: int
    seconds: float


def kept_records(root: Path, gpu: str) -> list[Kept]:
    """The records in a GPU's folder of what would be recorded today, oldest first.

    Points and stages that are no longer asked for do not count: a run's seconds are shared out by its processes' time.
    """
    folder, found = root / REFERENCE / gpu, dict[str, list[Kept]]()
    places = [(name, (NETWORKS, POINTS.get(name, name), Path(name))) for name in KNOWN]
    for study in sorted((root / "experiments").glob("*.toml")):
        points = (point.name for point in read_study(study, "", "").points)
        places += [
            (study.stem, (study.relative_to(root), point, Path("studies", study.stem, point))) for point in points
        ]
    for name, (file, point, place) in places:
        if (run := results_in(folder / place)).exists():
            found.setdefault(name, []).append(_kept(load(run), name, _asked(root / file, point)))
    return sorted(
        Kept(
            max(each.created for each in points),
            name,
            *(sum(numbers) for numbers in zip(*(each[2:] for each in points), strict=True)),
        )
        for name, points in found.items()
    )


def _asked(file: Path, name: str) -> tuple[tuple[str, ...], int]:
    """The stages of a study's point, and its rounds."""
    point = next(point for point in read_study(file, "", "").points if point.name == name)
    options = options_at(point, load_all())
    return options.stages, options.rounds


def _kept(run: Results, name: str, asked: tuple[tuple[str, ...], int]) -> Kept:
    """What a run would be today; no stage has a second process that no verdict depends on."""
    stages, rounds = asked
    spared = settled(run.stages) if rounds <= FEW_ROUNDS else {}
    took = [
        (sum(process.took_s.values()), stage.name in stages and process.round < (1 if stage.name in spared else rounds))
        for stage in run.stages
        for process in stage.processes
    ]
    whole, kept = sum(seconds for seconds, _ in took), [seconds for seconds, is_kept in took if is_kept]
    share = sum(kept) / whole if whole else 1.0
    return Kept(run.created, name, 1, len(kept), share * (run.seconds or 0.0))


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
    networks, studies = ([name for name in names if (name in KNOWN) is which] for which in (True, False))
    untested = networks and not elsewhere and not (root / MEASURED / "networks").exists()
    if untested and subprocess.call([str(root / "tools" / "test_gpu.sh"), sys.executable], cwd=root):
        return 3
    gpus = len(devices()) if engine is None and not on_cpu else 1
    file, place = CPU_NETWORKS if on_cpu else NETWORKS, MEASURED / "networks"
    apart = {place / name: (name,) for name in networks} if gpus > 1 else {place: tuple(networks)} if networks else {}
    recordings = [Recording(file, folder, own) for folder, own in apart.items()]
    recordings += [Recording(Path("experiments", f"{name}.toml"), MEASURED / name) for name in studies]
    several = [one for one in recordings if not one.networks and one.gpus(root) > 1]
    worst, alone = 0, [one for one in recordings if one not in several]
    if gpus > 1 and len(alone) > 1:
        worst, alone = _at_once(root, alone, options, gpus), []
    elif gpus > 1 and len(recordings) == 1:  # a slot for each of its points
        options += ["--on", "local"]
    for recording in [*alone, *several]:
        worst = worst if worst >= STOPS else max(worst, _ladder(root, *recording.words(root), *options))
    if worst >= STOPS:
        return worst
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


def _at_once(root: Path, recordings: Sequence[Recording], options: Sequence[str], gpus: int) -> int:
    """Measure these side by side, each on a GPU and a share of the cores; returns the worst status.

    Once one has stopped, no other begins.
    """
    free, ended = SimpleQueue[Slot](), [0]
    for slot in slots(gpus, local_gpus()):
        free.put(slot)

    def measure(recording: Recording) -> None:
        if max(ended) >= STOPS:
            return
        slot, log = free.get(), root / MEASURED / "logs" / f"{recording.folder.name}.log"
        os.sched_setaffinity(0, slot.cores or os.sched_getaffinity(0))  # of this thread, and so of its process
        log.parent.mkdir(parents=True, exist_ok=True)
        print(f"record: {log.stem} begins on GPU {slot.gpus}; see {log.relative_to(root)}", flush=True)
        with log.open("ab") as file:
            own = {**os.environ, "CUDA_VISIBLE_DEVICES": slot.gpus or ""}
            ended.append(_ladder(root, *recording.words(root), *options, env=own, stdout=file, stderr=file))
        print(f"record: {log.stem} ended with {ended[-1]}", flush=True)
        free.put(slot)

    with ThreadPoolExecutor(gpus) as pool:
        for measured in [pool.submit(measure, recording) for recording in recordings]:
            measured.result()
    return max(ended)


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


def _ladder(root: Path, *words: str, **how: Any) -> int:
    return subprocess.call([sys.executable, "run_ladder.py", *words], cwd=root, **how)


def _refuse(reason: str) -> int:
    print(f"record: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
