"""The commands of the front door: their options and help, and how options given as text become a command."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from common.errors import UsageError
from ladder.options import commands
from ladder.options.commands import Command
from ladder.options.run_options import FilePath, NotAllowedError, RunOptions, converted, option_types

Given = dict[str, Any]
"""The options on the command line, by their fields' names, as text."""
Option = tuple[str, str | None, str]
"""An option or an argument, the name of its value (None for a switch), and its help."""


def _with_default(name: str, value: str, text: str) -> Option:
    """An option of `RunOptions`, with the default that it has there."""
    default = getattr(RunOptions(), _field(name))
    return name, value, f"{text} ({f'{default:g}' if default != () else 'none'})"


def _field(name: str) -> str:
    """An option as the fields of commands name it."""
    return name.strip("-").replace("-", "_")


STAGE_FILE: Option = ("--stage-file", "FILE", "a stage of your own; repeat for more")
HIDDEN: Option = _with_default("--hidden", "N,...", "widths of the hidden layers")
EPOCHS: Option = _with_default("--epochs", "N", "in each training run")
BATCH_SIZE: Option = _with_default("--batch-size", "N", "images per step")
MAX_STEPS: Option = ("--max-steps", "N", "cut each epoch to its first N steps")
DATA_DIR: Option = ("--data-dir", "PATH", "of IDX files, or an .npz (else $LADDER_DATA_DIR, MNIST)")
TIMEOUT: Option = _with_default("--timeout", "S", "seconds after which a process counts as hung")
OUT: Option = ("--out", "FOLDER", "where the results go (runs/<time>)")
JSON: Option = ("--json", None, "print JSON instead of a table")
CSV: Option = ("--csv", None, "print the table's rows as CSV")
# The settings of a run, each with the commands that take it; in brackets those whose help has no room for it.
WHAT: dict[Option, str] = {
    ("--stages", "A,B..C", "names, all, classic, references, cpu, memory..."): "run profile study",
    STAGE_FILE: "run profile",
    ("--no-fail-fast", None, "measure the stage of such a file even if it is wrong"): "run (profile)",
    ("--resume", "FOLDER", "continue a stopped run"): "run (profile)",
    _with_default("--networks", "K", "networks that train on the same batches"): "run check (profile)",
    ("--learning-rates", "X,Y", "the same, a network at each rate"): "run check (profile)",
    _with_default("--gpus", "N", "GPUs that a stage of `devices` divides a batch among"): "run check (profile advise)",
    HIDDEN: "run check profile study advise",
    BATCH_SIZE: "run check profile study advise",
    _with_default("--learning-rate", "X", "of plain SGD"): "run check profile study (advise)",
    EPOCHS: "run profile study advise",
    _with_default("--seed", "N", "of the initial parameters and the image order"): "run check profile study (advise)",
    _with_default("--metrics-every", "N", "epochs between sparse metrics"): "run check profile study (advise)",
    _with_default("--validate-every", "N", "epochs between timed validations; 0: none"): "run profile study (advise)",
    MAX_STEPS: "run check profile study (advise)",
    ("--target-accuracy", "P%", "validate, and report epochs and seconds to reach this"): "run (profile advise)",
    DATA_DIR: "run check profile (advise)",
    ("--config", "FILE", "TOML with these options; the command line wins"): "run profile",
}
HOW: dict[Option, str] = {
    _with_default("--rounds", "N", "fresh processes for each stage"): "run study (profile advise)",
    _with_default("--repeats", "N", "timed runs in each process"): "run study (profile advise)",
    _with_default("--warmups", "N", "untimed runs before them, half as long"): "run (profile advise)",
    ("--budget", "S", "seconds to measure a slow stage for (5; on a CPU 2)"): "run study (profile advise)",
    ("--budget-total", "S", "seconds to measure all stages for (60; on a CPU 20)"): "run (profile advise)",
    TIMEOUT: "run check (profile advise)",
    _with_default("--remeasure", "N", "new tries at most for a disturbed process"): "run study (profile advise)",
    ("--precision", "P%", "add rounds until 95% intervals are this narrow"): "run (profile advise)",
    ("--time-cap", "S", "seconds after which --precision adds none (600)"): "run (profile advise)",
    _with_default("--at-once", "N", "processes side by side: checks, but no times"): "run (profile advise)",
    ("--prepare-at-once", "N", "stages to prepare at once, on a GPU (by cores, memory)"): "run (profile advise)",
    ("--tune-references", None, "let PyTorch and JAX try many kernels, for minutes"): "run study (profile advise)",
    ("--lock-clocks", "MHZ", "hold the GPU's SM clock; needs permission"): "run (profile advise)",
}
OUTPUT: dict[Option, str] = {
    ("--nsys-stages", "A,B..C", "stages that nsys profiles (all of the run)"): "run (profile advise)",
    ("--energy", None, "report joules per epoch, by the GPU's own counter"): "run (profile advise)",
    _with_default("--curve-steps", "N", "record loss and accuracy every N steps; 0: never"): "run (profile)",
    OUT: "run profile",
    ("--dry-run", None, "say what would run and for how long; run nothing"): "run (profile)",
}


def _shown(command: str, settings: Mapping[Option, str]) -> tuple[Option, ...]:
    """The settings that a command's help has."""
    return tuple(option for option, commands in settings.items() if command in commands.partition("(")[0].split())


def _hidden(command: str) -> tuple[Option, ...]:
    """The settings that a command takes beside those that its help has."""
    settings = {**WHAT, **HOW, **OUTPUT}
    return tuple(o for o, commands in settings.items() if command in commands.partition("(")[2].strip(")").split())


ARGUMENTS = {  # positional
    "path": "PATH", "folder": "FOLDER", "runs": "RUN", "stage": "STAGE", "run": "RUN", "file": "FILE", "model": "MODEL",
}  # fmt: skip
BRIEFLY = {"rounds": "1", "repeats": "1", "profile": "auto"}  # where `profile` differs from `run`


@dataclass(frozen=True)
class FrontDoor:
    """A command's help and options, and the function that makes the command from them."""

    summary: str
    usage: str
    groups: Mapping[str, Sequence[Option]]
    examples: tuple[str, str]
    made: Callable[[Given], Command]
    hidden: Sequence[Option] = ()  # accepted, and not in the help
    description: str = ""  # more than the summary

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Give the parser the groups and their options."""
        for title, options in self.groups.items():
            group = parser.add_argument_group(title)
            for option in options:
                _add(group, *option)
        for name, value, _ in self.hidden:
            _add(parser, name, value, argparse.SUPPRESS)


def _add(parser: Any, name: str, value: str | None, text: str) -> None:
    """Add an option; its value stays text, which `converted` reads."""
    text = text.replace("%", "%%")
    if name == "RUN":
        parser.add_argument("runs", metavar=name, nargs="+", help=text)
    elif not name.startswith("-"):
        optional = name.startswith("[")
        parser.add_argument(
            name.strip("[]").lower(), metavar=name.strip("[]"), nargs="?" if optional else None, help=text
        )
    elif value is None:
        parser.add_argument(name, action="store_true", help=text)
    elif name == "--tool":
        parser.add_argument(name, dest="profile", metavar=value, help=text)
    else:
        repeats = "append" if name in ("--stage-file", "--slurm", "--vary") else "store"
        parser.add_argument(name, metavar=value, action=repeats, help=text)


def _run(given: Given) -> Command:
    """A run, or its resumption."""
    stage_file = {"stage_file": given.pop("stage_file", [])}
    fail_fast = {"no_fail_fast": True} if given.pop("no_fail_fast", False) else {}
    if "resume" in given:
        return _resume(given, {**stage_file, **fail_fast})
    config = _configured(given.pop("config")) if "config" in given else {}
    own: Given = {name: given.pop(name) for name in ("out", "dry_run") if name in given}
    options = RunOptions(**{**config, **_converted(RunOptions, given)})
    return _made(commands.Run, {**stage_file, **fail_fast, **own}, options=options)


def _configured(path: str) -> Given:
    """The options in a TOML file."""
    from ladder.options.toml_file import options_of  # late: most commands read no TOML

    return options_of(_value("config", path, FilePath))


def _resume(given: Given, of_files: Given) -> Command:
    """A run that continues with the settings it began with, apart from how long and how often it tries."""
    allowed = ("resume", "data_dir", "profile", "nsys_stages", "budget", "timeout", "remeasure")
    free: Given = {name: given.pop(name) for name in allowed if name in given}
    if given.get("stages") == "all":  # `make ladder` always adds it; here it means all stages of the run
        del given["stages"]
    for name, value in given.items():
        value = "" if value is True else f" {value}"
        raise UsageError(f"{_option(name)}{value}: a resumed run keeps its settings; leave it out, or start anew")
    return _made(commands.Resume, {**free, **of_files})


def _profile(given: Given) -> Command:
    """A brief run with a profile."""
    if "stage" in given:
        if "stages" in given:
            raise UsageError(f"profile {given['stage']}: names a stage, as --stages does; leave one of them out")
        given["stages"] = given.pop("stage")
    if "resume" in given:
        raise UsageError("profile --resume: starts a new run; profile a recorded one by --resume FOLDER --profile nsys")
    return _run({**BRIEFLY, **given})


def _advise(given: Given) -> Command:
    """What to expect of one problem."""
    measures, of_run = "measure" in given, given.keys() & {*RunOptions.__struct_fields__}
    if measures and "gpu" in given:
        raise UsageError(f"--gpu {given['gpu']}: --measure times this machine's GPU; leave one of them out")
    for name in ("inputs", "classes", "measured_eager") if measures else ():
        if name in given:
            raise UsageError(f"{_option(name)} {given[name]}: --measure trains on images here; leave one of them out")
    for name in () if measures else sorted(of_run - {"hidden", "batch_size", "epochs"}):
        raise UsageError(f"{_option(name)}: is about measuring; add --measure, or leave it out")
    options = RunOptions(**_converted(RunOptions, {name: given.pop(name) for name in of_run}))
    return _made(commands.Advise, given, options=options)


def _check(given: Given) -> Command:
    """A check of one stage on one problem."""
    own: Given = {name: given.pop(name) for name in ("file", "rubric", "json", "csv") if name in given}
    return _made(commands.CheckStage, own, options=RunOptions(**_converted(RunOptions, given)))


def _grade(given: Given) -> Command:
    """The check of each file in a folder."""
    own: Given = {name: given.pop(name) for name in ("folder", "rubric", "timeout", "json", "csv") if name in given}
    if "rubric" not in own:
        raise UsageError("grade: needs points to give; add --rubric FILE, such as examples/lab/2_remove_the_wait.toml")
    settings = tuple(f"{_option(name)}={value}" for name, value in given.items())
    return _made(commands.Grade, own, options=RunOptions(**_converted(RunOptions, given)), settings=settings)


def _study(given: Given) -> Command:
    """A study, or its resumption."""
    of_jobs = ("on", "parallel", "gpus", "slurm", "in_job")
    free: Given = {name: given.pop(name) for name in ("points", "data_dir", *of_jobs) if name in given}
    if "resume" in given:
        folder = given.pop("resume")
        for name in given:
            raise UsageError(f"study --resume: a resumed study keeps its settings; leave out {name}, or start anew")
        return _made(commands.ResumeStudy, {"resume": folder, **free})
    if ("file" in given) == ("vary" in given):
        wrong = "--vary takes the place of a file; leave one of them out" if "file" in given else (
            "needs a file, such as experiments/hidden-size.toml, --vary hidden=64,256, or --resume FOLDER"
        )  # fmt: skip
        raise UsageError(f"study: {wrong}")
    if "on" not in free and (told := [name for name in of_jobs if name in free]):
        raise UsageError(f"{_option(told[0])}: needs --on local or --on slurm; add one")
    free.pop("in_job", None)
    where: Given = {name: given.pop(name) for name in ("file", "vary", "out") if name in given}
    return _made(commands.MeasureStudy, {**where, **free}, changes=msgspec.to_builtins(_converted(RunOptions, given)))


def _torch(given: Given) -> Command:
    """The ladder over a model, its continuation, or an example of a model."""
    alone = {"example": (), "resume": ("model", "timeout", "epochs", "write", "json", "csv")}
    for name, beside in alone.items():
        if name not in given:
            continue
        for other in sorted(given.keys() - {name, *beside}):
            kept = "a stopped run keeps its settings" if name == "resume" else "prints a file and runs nothing"
            value = "" if given[other] is True else f" {given[other]}"
            raise UsageError(f"--{name} {given[name]}: {kept}; leave out {_option(other)}{value}")
    return _made(commands.Torch, given)


def _made(kind: type[Command], given: Mapping[str, Any], **parts: Any) -> Command:
    """A command, from options given as text and from finished parts."""
    return kind(**_converted(kind, given), **parts)


def _converted(kind: type[msgspec.Struct], given: Mapping[str, Any]) -> Given:
    """The options as the struct has them; UsageError with the option, its value, and the allowed ones."""
    kinds = option_types(kind)
    return {name: _value(name, text, kinds[name]) for name, text in given.items()}


def _value(name: str, text: Any, kind: Any) -> Any:
    try:
        return converted(text, kind, from_text=True)
    except NotAllowedError as error:
        shown = text if isinstance(text, str) else "" if "" in text else ",".join(text)
        shown = shown if shown and shown.isprintable() else repr(shown)
        raise UsageError(f"{_option(name)} {shown}: {error}") from None


def _option(field: str) -> str:
    """A field as the command line names it."""
    return ARGUMENTS.get(field, f"--{field.replace('_', '-')}")


COMMANDS: dict[str, FrontDoor] = {
    "run": FrontDoor(
        "train, verify and time stages; the default",
        "[run] [OPTIONS]",
        {
            "what to run (defaults in brackets)": _shown("run", WHAT),
            "how to measure": _shown("run", HOW),
            "output": (
                ("--profile", "TOOL,...", "nsys, cupti, stamps, auto, none (cupti,stamps)"), *_shown("run", OUTPUT),
            ),
        },
        ("--stages all", "--stages naive..cublas --hidden 256"),
        _run,
        (("--tool", "TOOL,...", ""),),
    ),
    "check": FrontDoor(
        "say within seconds whether a stage is right, without timing it",
        "check FILE [OPTIONS]",
        {
            "what to check (defaults in brackets)": (
                ("FILE", None, "a stage of your own, or the name of one in `list`"),
                *_shown("check", WHAT), *_shown("check", HOW),
            ),
            "how to grade": (("--rubric", "FILE", "TOML of points by check, and limits of counts: examples/lab"),),
            "output": (JSON, CSV),
        },
        ("check my_stage.py", "check my_stage.py --hidden 256 --json"),
        _check,
        (),
        "The first updates, an epoch from zeros, three short epochs and updates of\n"
        "trained parameters must agree with training in float64, and so must metrics.\n"
        "Exit status: 0 right, 1 wrong, 2 cannot be checked.",
    ),
    "grade": FrontDoor(
        "grade a folder of submissions by a rubric",
        "grade FOLDER --rubric FILE [OPTIONS]",
        {
            "what to grade (defaults in brackets)": (
                ("FOLDER", None, "of Python files, or of a folder a student"),
                ("--rubric", "FILE", "TOML of points by check, and limits of counts: examples/lab"),
                ("--timeout", "S", "seconds after which a submission has no points (120)"),
                HIDDEN, BATCH_SIZE, MAX_STEPS, DATA_DIR,
            ),
            "output": (JSON, CSV),
        },
        ("grade submissions --rubric mine.toml", "grade submissions --rubric mine.toml --csv"),
        _grade,
        (),
        "Each file is checked in a process of its own, which reaches no network where\n"
        "Linux allows to cut it off. Exit status: 0 all are graded, 2 the rubric, the\n"
        "data or the set-up is at fault.",
    ),
    "profile": FrontDoor(
        "run stages briefly, and profile them",
        "profile [STAGE] [OPTIONS]",
        {
            "what to run (defaults in brackets)": (
                ("[STAGE]", None, "one stage, in place of --stages"), *_shown("profile", WHAT),
            ),
            "how to measure": (
                ("--tool", "TOOL,...", "nsys, cupti, stamps (CPU), auto (nsys where found)"),
            ),
            "output": _shown("profile", OUTPUT),
        },
        ("profile cuda-graph --tool nsys", "profile --stages all --hidden 256"),
        _profile,
        (*_hidden("profile"), ("--profile", "TOOL,...", "")),
        "One round and one repeat are timed first. All other options of `run` work, too.",
    ),
    "study": FrontDoor(
        "measure the points of one or two settings that vary",
        "study [FILE] [OPTIONS]",
        {
            "what to run": (
                ("[FILE]", None, "a study, such as experiments/hidden-size.toml"),
                ("--vary", "KEY=A,B...", "values in its place (layers: 128-64); twice: crossed"),
                ("--points", "NAME,...", "only these points; the others wait for --resume"),
                ("--resume", "FOLDER", "continue a stopped study"),
                DATA_DIR,
            ),
            "how to measure, at every point": tuple(
                (name, value, text.partition(" (")[0])
                for settings in (WHAT, HOW) for name, value, text in _shown("study", settings)
            ),
            "where to measure (point by point, here)": (
                ("--on", "ENGINE", "local or slurm: a job a point, which goes on after Ctrl-C"),
                ("--parallel", "N", "jobs at once (as many as GPUs, or all on Slurm)"),
                ("--gpus", "N", "GPUs of each job (1, or 0 where no stage needs one)"),
                ("--slurm", "KEY=VALUE", "an option of sbatch, such as partition=gpu; repeatable"),
            ),
            "output": (("--out", "FOLDER", "where the results go (runs/<name>-<time>)"),),
        },
        ("study experiments/hidden-size.toml", "study --vary hidden=64,256,1024 --stages classic"),
        _study,
        (("--in-job", "PID", ""),),
    ),
    "torch": FrontDoor(
        "run the ladder over a PyTorch model of your own",
        "torch [MODEL] [OPTIONS]",
        {
            "what to run (defaults in brackets)": (
                ("[MODEL]", None, "your file, such as my_model.py: docs/your-model.md"),
                ("--example", "EXAMPLE", "print a file to start from: tabular, mlp, cnn, ppo, chars"),
                ("--stages", "RUNG,A..B", "names of rungs, or ranges (all but three)"),
                ("--resume", "FOLDER", "continue a stopped run; MODEL may be left out"),
            ),
            "what to find out": (
                ("--check", None, "whether all rungs are right; take no times"),
                ("--epochs", "N", "which rung pays for so long a training (EPOCHS of MODEL)"),
                ("--write", "FILE", "write the best loop as a script in PyTorch alone"),
            ),
            "how to measure": (
                ("--rounds", "N", "fresh processes for each rung (2)"),
                ("--repeats", "N", "timed runs in each process (3)"),
                TIMEOUT,
                ("--energy", None, "report joules per step, by the GPU's own counter"),
            ),
            "output": (OUT, ("--dry-run", None, "try MODEL for two steps, list the rungs that fit"), JSON, CSV),
        },
        ("torch --example tabular", "torch my_model.py --epochs 30 --write train_fast.py"),
        _torch,
        (),
        "Each rung trains your model with one choice changed, is judged against eager\n"
        "PyTorch and float64, and timed. Exit status of --check: 0 all rungs are right,\n"
        "1 one is wrong or crashed, 2 it cannot be checked.",
    ),
    "report": FrontDoor(
        "render a run or a study again; needs no GPU",
        "report PATH",
        {
            "what to render": (("PATH", None, "its folder, or the results.json or study.json in it"),),
            "output": (JSON, CSV),
        },
        ("report runs/20260101-120000", "report results/reference/h200/logistic"),
        lambda given: _made(commands.Report, given),
    ),
    "open": FrontDoor(
        "open a run's page in the browser: its rungs, to climb by clicking",
        "open [RUN]",
        {"what to open": (("[RUN]", None, "a run's or a study's folder (the newest in runs/, else a recorded one)"),)},
        ("open", "open results/reference/h200/logistic"),
        lambda given: _made(commands.Open, given),
    ),
    "compare": FrontDoor(
        "say which stages became faster or slower between two runs",
        "compare RUN [RUN ...] [OPTIONS]",
        {
            "what to compare": (
                ("RUN", None, "a run's or study's folder or file, or reference:GPU[/PROBLEM]; the first is the base"),
            ),
            "how to judge": (
                ("--threshold", "P%", "a regression is slower by more than this (2%)"),
                ("--strict", None, "exit with 2 unless a regression is ruled out everywhere"),
            ),
            "output": (("--format", "FORMAT", "text, markdown, json or csv (text)"), JSON, CSV),
        },
        ("compare runs/before runs/after", "compare reference:h200 runs/mine --threshold 5%"),
        lambda given: _made(commands.Compare, given),
        (),
        "Each stage is FASTER, SLOWER, SAME within x%, or AMBIGUOUS. Three or more runs\n"
        "are shown side by side, and studies point by point. Exit status: 0 no\n"
        "regression, 1 a regression, 2 a stage is now skipped.",
    ),
    "explain": FrontDoor(
        "say where the time of one stage goes, and what to try next",
        "explain STAGE [RUN] [OPTIONS]",
        {
            "what to explain": (
                ("STAGE", None, "its name, as in `list`; a run: the fastest rung"),
                ("[RUN]", None, "its folder, or reference:GPU[/PROBLEM] (the newest in runs/)"),
                STAGE_FILE,
            ),
            "output": (JSON, CSV),
        },
        ("explain cuda-graph", "explain naive runs/20260101-120000"),
        lambda given: _made(commands.Explain, given),
    ),
    "list": FrontDoor(
        "list the stages: what each changes, and whether it runs here",
        "list [OPTIONS]",
        {
            "what to list": (STAGE_FILE,),
            "the network to expect times for, on an H200": (HIDDEN, BATCH_SIZE),
            "output": (JSON, CSV),
        },
        ("list", "list --hidden 512,512 --batch-size 256"),
        lambda given: _made(commands.ListStages, given),
        (),
        "Recorded networks are in docs/recordings.md. `run` trains any: it has --hidden,\n"
        "--batch-size, and --networks for several at once.",
    ),
    "advise": FrontDoor(
        "say what your network should gain, and whether to leave PyTorch",
        "advise [OPTIONS]",
        {
            "what to train (defaults in brackets)": (
                ("--inputs", "N", "features of a row (784)"),
                (*HIDDEN[:2], "widths of the hidden layers (none): 300,100 for 784-300-100-10"),
                ("--classes", "N", "classes to tell apart (10)"), _with_default("--batch-size", "N", "rows per step"),
                EPOCHS, ("--rows", "N", "rows per epoch (60000)"),
                ("--optimizer", "NAME", "of torch.optim, in any case (sgd); another than sgd compares eager mode "
                 "with a CUDA graph alone; estimates stay those of plain SGD"),
                ("--dropout", "P", "share that is dropped, such as 0.1 (0): the same comparison, without dropout"),
            ),
            "where": (
                ("--gpu", "NAME", "such as H200 or \"RTX 4090\" (this machine's, else H200)"),
                ("--bandwidth", "GB/S", "of the memory of another GPU, for a guess"),
                ("--launch", "US", "time that your host takes per launch, such as 2.5us: `run_ladder.py limits` there "
                 "measures it"),
                ("--measured-eager", "T", "one step of your own loop, such as 20ms, timed after synchronising, "
                 "DataLoader and optimizer included: replaces the estimate of eager mode"),
            ),
            "output": (
                ("--measure", None, "time the stages that decide, on this GPU; takes options of run"),
                ("--svg", "FILE", "draw the times and their ranges"), JSON, CSV,
            ),
        },
        ("advise --hidden 300,100 --measured-eager 2ms", "advise --hidden 256 --optimizer adam --gpu \"RTX 4090\""),
        _advise,
        _hidden("advise"),
    ),
    "doctor": FrontDoor(
        "show what is installed, what is missing, and how to add it",
        "doctor",
        {"output": (JSON, CSV)},
        ("doctor", "list"),
        lambda given: _made(commands.Doctor, given),
    ),
    "limits": FrontDoor(
        "measure this GPU's launches, barriers, bandwidths and products",
        "limits",
        {"output": (JSON, CSV)},
        ("limits", "doctor"),
        lambda given: _made(commands.MeasureLimits, given),
    ),
    "readme": FrontDoor(
        "write the recorded runs into README.md and docs/",
        "readme",
        {},
        ("readme", "report results/reference/h200/logistic"),
        lambda given: _made(commands.Readme, given),
    ),
}  # fmt: skip
