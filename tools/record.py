"""Records results/reference/<machine>/: networks of tools/networks.toml or studies of experiments/, here or by Slurm.

    python -m tools.record [NAME ...] [--within SECONDS] [OPTION ...]
    python -m tools.record torch [MODEL ...] [OPTION ...]
    python -m tools.record plan [FOLDER]

Without a name it runs GPU tests and records the first three networks. `studies` means every study, and `torch` every
model of examples/torch/; `all` means everything, the oldest record first. `plan` prints this order for a GPU's folder,
by default `h200`, and the seconds by the records: those in runs/record/ say by how much the others are faster today.
Options are those of `study`, such as `--on slurm --slurm partition=gpu`; of models alone, those of `torch`.
Run it from a committed tree. Several GPUs of this host are used at once: each network, study and model has one of them
and a share of the cores, and writes to runs/record/logs/; one that needs several GPUs follows alone.
After the word `cpu`, names are networks of tools/cpu_networks.toml: the CPU rungs and references of this host.
A recording that is interrupted, or stopped after `--within` seconds, keeps what is measured in runs/record/: the same
command continues, and repeats no tests that have passed at this commit. Old records stay until all is measured. Then it
names what to commit. Exits with 1 if a stage failed or crashed, as the record shows, too.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from common.cuda.driver import devices
from common.signals import INTERRUPTED
from ladder.machine.environment import git_state
from ladder.options.commands import Torch
from ladder.records import torch_run
from ladder.records.exactness import settled
from ladder.records.run import Results, all_results, load, results_in
from ladder.records.study import INDEX
from ladder.run.nsys_pass import ACTIVITY as UNDER_NSYS
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
TESTED = MEASURED / "tested"  # names the commit whose tests have passed
STOPS = 2  # an exit status from which on nothing is kept: wrong words, or Ctrl-C, after which nothing begins either


class Recording(NamedTuple):
    """What one command measures: a study or a model, its file, and the folder to measure it in.

    Of a study of networks, these alone, if any are named.
    """

    file: Path
    folder: Path
    networks: tuple[str, ...] = ()

    @property
    def is_model(self) -> bool:
        """Whether it is a PyTorch model."""
        return self.file.suffix == ".py"

    def words(self, root: Path) -> list[str]:
        """The command that begins or continues it."""
        has_begun = (root / self.folder / (torch_run.FILE if self.is_model else INDEX)).exists()
        where = ["--resume" if has_begun else "--out", str(self.folder)]
        if self.is_model:
            return ["torch", str(self.file), *where]
        begin = [] if has_begun else [str(self.file)]
        tune = [] if has_begun else ["--tune-references"]
        points = ["--points", ",".join(POINTS.get(name, name) for name in self.networks)] if self.networks else []
        return ["study", *begin, *where, *tune, *points]

    def gpus(self, root: Path) -> int:
        """How many GPUs one of its points needs."""
        if self.networks or self.is_model:
            return 1
        gpus: int = max(point.settings.get("gpus", 1) for point in read_study(root / self.file, "", "").points)
        return gpus

    @property
    def ended(self) -> Path:
        """The file with the exit status of its command and the commit, once all is measured."""
        return self.folder.with_name("-".join(dict.fromkeys([self.folder.name, *self.networks])) + ".ended")

    def status(self, root: Path) -> int | None:
        """The exit status of its command; None if it has to begin or to go on, at this commit."""
        if not ((root / self.ended).exists() and (root / self.folder).exists()):
            return None
        status, commit = (root / self.ended).read_text().split()
        return int(status) if commit == str(git_state(root)[0]) else None

    def measure(self, root: Path, options: Sequence[str], until: float, **how: Any) -> int:
        """Measure what is missing until this time of the monotonic clock; returns the exit status."""
        if (status := self.status(root)) is None:
            status = _ladder(root, *self.words(root), *options, until=until, **how)
            if status < STOPS:
                (root / self.ended).write_text(f"{status} {git_state(root)[0]}\n")
        return status


class Kept(NamedTuple):
    """A record of a network, a study or a model."""

    created: str
    name: str
    points: int
    processes: int
    seconds: float


def kept_records(root: Path, gpu: str) -> list[Kept]:
    """The records in a GPU's folder of what would be recorded today, oldest first.

    Points and stages that are no longer asked for do not count: a run's seconds are shared out by its processes' time.
    """
    folder, found, aside_s = root / REFERENCE / gpu, dict[str, list[Kept]](), dict[str, float]()
    places = [(name, (NETWORKS, POINTS.get(name, name), Path(name))) for name in KNOWN]
    for study in sorted((root / "experiments").glob("*.toml")):
        points = (point.name for point in read_study(study, "", "").points)
        places += [
            (study.stem, (study.relative_to(root), point, Path("studies", study.stem, point))) for point in points
        ]
    for name, (file, point, place) in places:
        if (results := results_in(folder / place)).exists():
            run = load(results)
            found.setdefault(name, []).append(_kept(run, name, _asked(root / file, point)))
            aside_s[name] = max(aside_s.get(name, 0.0), _compiled_before(run))
    for name in _models(root):
        if (folder / "torch" / name / torch_run.FILE).exists():
            model = torch_run.load(folder / "torch" / name)
            processes = sum(len(rung.processes) for rung in model.rungs)
            found[name] = [Kept(model.created, name, 1, processes, model.seconds)]
    return sorted(
        Kept(
            max(point.created for point in points),
            name,
            len(points),
            sum(point.processes for point in points),
            sum(point.seconds for point in points) + aside_s.get(name, 0.0),
        )
        for name, points in found.items()
    )


def _compiled_before(run: Results) -> float:
    """The seconds of the slowest stage that compiled beside those of other points, before the run."""
    return 0.0 if "compiling" in run.took_s else max((stage.compiled_s or 0.0 for stage in run.stages), default=0.0)


def anew(root: Path) -> dict[str, float]:
    """The seconds of each recording in runs/record/ that has ended, by name."""
    seconds: dict[str, float] = {}
    for ended in (root / MEASURED).rglob("*.ended"):
        folder = ended.with_suffix("")
        runs = [load(path.parent).seconds or 0.0 for path in folder.rglob("results.json")]
        seconds[ended.stem] = sum(runs) if runs else torch_run.load(folder).seconds
    return seconds


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
    whole_s = (run.seconds or 0.0) - run.took_s.get(UNDER_NSYS, 0.0)  # which none is today
    return Kept(run.created, name, 1, len(kept), share * whole_s)


def plan(root: Path, gpu: str) -> list[str]:
    """The lines of a table of these records, with the seconds of each and of all so far.

    What is measured anew has its own seconds, and says by how much the others' have changed since they were recorded.
    """
    lines, total = ["| Record | Points | Processes | Seconds | In all |", "| --- " + "| ---: " * 4 + "|"], 0.0
    records, now = kept_records(root, gpu), anew(root)
    before = {kept.name: kept.seconds for kept in records if kept.name in now}
    pace = sum(now[name] for name in before) / sum(before.values()) if before else 1.0
    for kept in records:
        seconds = now.get(kept.name, pace * kept.seconds)
        total += seconds
        lines.append(f"| {kept.name} | {kept.points} | {kept.processes} | {seconds:.0f} | {total:.0f} |")
    return lines


def oldest(root: Path, gpu: str, names: Sequence[str]) -> list[str]:
    """These names by the age of their record, those without one first."""
    created = {kept.name: kept.created for kept in kept_records(root, gpu)}
    return sorted(names, key=lambda name: created.get(name, ""))


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Record what the command line names; returns the exit status."""
    if list(argv[:1]) == ["plan"]:
        print(*plan(root, argv[1] if len(argv) > 1 else "h200"), sep="\n")
        return 0
    first_option = next((number for number, word in enumerate(argv) if word.startswith("-")), len(argv))
    on_cpu = list(argv[:1]) == ["cpu"]
    names, options = list(argv[on_cpu:first_option]) or list(DEFAULT), list(argv[first_option:])
    within_s = math.inf
    if "--within" in options:
        at = options.index("--within")
        _, value, *_ = [*options[at : at + 2], ""]
        if not value.isdigit():
            return _refuse(f"--within {value}: takes seconds")
        within_s = float(value)
        del options[at : at + 2]
    until = time.monotonic() + within_s
    every, models = _studies(root), _models(root)
    if names == ["all"]:
        gpu = slug_of(devices()[0].name) if devices() else ""
        names = oldest(root, gpu, [*KNOWN, *every, *models])
    if names[0] == "torch" and len(names) > 1:
        del names[0]
    meant = {"studies": every, "torch": models}
    names = [one for name in names for one in meant.get(name, [name])]
    if unknown := [name for name in names if name not in (*KNOWN, *every, *models)]:
        return _refuse(f"there is no network, study or model {unknown[0]}")
    if on_cpu and (unknown := [name for name in names if name not in DEFAULT]):
        return _refuse(f"there is no network {unknown[0]} for a CPU; choose from {', '.join(DEFAULT)}")
    if on_cpu and devices():
        return _refuse("cpu: PyTorch and JAX would use this machine's GPU; set CUDA_VISIBLE_DEVICES=-1")
    engine = _engine(options)
    here = engine is None and not on_cpu
    networks = [name for name in names if name in KNOWN]
    studies, own = [[name for name in names if name in of] for of in (every, models)]
    file, place = CPU_NETWORKS if on_cpu else NETWORKS, MEASURED / "networks"
    apart = {place / name: (name,) for name in networks} if here else {place: tuple(networks)} if networks else {}
    recordings = [Recording(file, folder, one) for folder, one in apart.items()]
    recordings += [Recording(Path("experiments", f"{name}.toml"), MEASURED / name) for name in studies]
    recordings += [Recording(models[name], MEASURED / "torch" / name) for name in own]
    due = [one for one in recordings if one.status(root) is None]
    if not (on_cpu or engine == "slurm" or devices() or all(one.is_model for one in due)):
        return _refuse("no NVIDIA GPU here; `python -m tools.record cpu` records the CPU")
    if here and any(one.networks for one in due) and not _tested(root):
        return 3
    if (worst := _measured(root, recordings, options, until, len(devices()) if here else 1)) >= STOPS:
        left = [str(one.folder.relative_to(MEASURED)) for one in recordings if one.status(root) is None]
        print(f"record: {MEASURED} has what is measured; the same command continues with {', '.join(left)}")
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
    added = [kept for _, kept in records] + [_keep_model(root, name, models[name]) for name in own]
    for one in recordings:
        shutil.rmtree(root / one.folder, ignore_errors=True)
        (root / one.ended).unlink(missing_ok=True)
    print("record: to add these records, look at their figures, then")
    print("    python run_ladder.py readme")
    print(f"    git add README.md docs {' '.join(str(kept.relative_to(root)) for kept in added)}")
    print("and commit; `pytest tests/recorded` is what the pull request's checks say of them")
    return worst


def _studies(root: Path) -> list[str]:
    """The names of all studies, the longest first."""
    names = sorted(path.stem for path in (root / "experiments").glob("*.toml"))
    return sorted(names, key=lambda name: LONGEST.index(name) if name in LONGEST else len(LONGEST))


def _models(root: Path) -> dict[str, Path]:
    """The file of each PyTorch model, by name."""
    return {path.stem: path.relative_to(root) for path in sorted((root / "examples" / "torch").glob("*.py"))}


def _tested(root: Path) -> bool:
    """Whether the GPU's tests pass at this commit, or have passed."""
    commit, _ = git_state(root)
    if commit and (root / TESTED).exists() and (root / TESTED).read_text().strip() == commit:
        return True
    if subprocess.call([str(root / "tools" / "test_gpu.sh"), sys.executable], cwd=root):
        return False
    (root / MEASURED).mkdir(parents=True, exist_ok=True)
    (root / TESTED).write_text(f"{commit}\n")
    return True


def _measured(root: Path, recordings: Sequence[Recording], options: Sequence[str], until: float, gpus: int) -> int:
    """Measure these on so many GPUs; returns the worst status."""
    several = [one for one in recordings if one.gpus(root) > 1]
    worst, alone = 0, [one for one in recordings if one not in several]
    if gpus > 1 and len(alone) > 1:
        worst, alone = _at_once(root, alone, options, gpus, until), []
    elif gpus > 1 and len(recordings) == 1 and until == math.inf and find_spec("submitit"):
        options = [*options, "--on", "local"]  # a slot for each of its points; such jobs outlive an interruption
    for recording in [*alone, *several]:
        if worst != INTERRUPTED:
            worst = max(worst, recording.measure(root, options, until))
    return worst


def _at_once(root: Path, recordings: Sequence[Recording], options: Sequence[str], gpus: int, until: float) -> int:
    """Measure these side by side, each on a GPU and a share of the cores; returns the worst status.

    Once one was interrupted, no other begins.
    """
    free, ended = SimpleQueue[Slot](), [0]
    for slot in slots(gpus, local_gpus()):
        free.put(slot)

    def measure(recording: Recording) -> None:
        if INTERRUPTED in ended:
            return
        slot, log = free.get(), root / MEASURED / "logs" / f"{recording.folder.name}.log"
        os.sched_setaffinity(0, slot.cores or os.sched_getaffinity(0))  # of this thread, and so of its process
        log.parent.mkdir(parents=True, exist_ok=True)
        print(f"record: {log.stem} begins on GPU {slot.gpus}; see {log.relative_to(root)}", flush=True)
        began = time.monotonic()
        with log.open("ab") as file:
            own = {**os.environ, "CUDA_VISIBLE_DEVICES": slot.gpus or ""}
            ended.append(recording.measure(root, options, until, env=own, stdout=file, stderr=file))
        print(f"record: {log.stem} ended with {ended[-1]} after {time.monotonic() - began:.0f} s", flush=True)
        free.put(slot)

    with ThreadPoolExecutor(gpus) as pool:
        measured = [pool.submit(measure, recording) for recording in recordings]
        try:
            for one in measured:
                one.result()
        except KeyboardInterrupt:  # which the commands have heard, too
            ended.append(INTERRUPTED)
    return max(ended)


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


def _keep_model(root: Path, name: str, file: Path) -> Path:
    """Replace a model's record; returns its folder."""
    measured = root / MEASURED / "torch" / name
    results = torch_run.load(measured)
    _keep(measured, kept := root / REFERENCE / slug(results) / "torch" / name)
    export.write(Torch(model=root / file), results, kept)  # the scripts name the model's folder from there
    return kept


def _ladder(root: Path, *words: str, until: float = math.inf, **how: Any) -> int:
    """Run a command, and interrupt it at this time of the monotonic clock; returns its exit status."""
    left_s = until - time.monotonic()
    if left_s <= 0:
        return INTERRUPTED
    command = [sys.executable, "run_ladder.py", *words]
    with subprocess.Popen(command, cwd=root, **how) as process:
        try:
            process.wait(None if left_s == math.inf else left_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        except KeyboardInterrupt:  # which the command has heard, too
            pass
        status = process.wait()
    return status if status >= 0 else 128 - status  # as a shell has it


def _refuse(reason: str) -> int:
    print(f"record: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
