"""How often one to four controls refuse another, as if it were a stage: `python -m tests.cheats.refused_by_chance`.

Prints the share of refusals for the distance from the oracle after each epoch, over all choices of these controls.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np

from common.data.dataset import load_dataset
from common.oracle import FloatArray
from common.problem import Problem
from ladder.verify.gates import path_limit
from ladder.verify.oracle_runs import Task, compute, spread_of

CONTROLS, MOST = 6, 4


def main() -> None:
    """Train networks 784-128x3-10 in float64, each with six controls in float32."""
    arguments = argparse.ArgumentParser(description=__doc__)
    for name, default in (("networks", 24), ("steps", 128), ("epochs", 4)):
        arguments.add_argument(f"--{name}", type=int, default=default)
    asked = arguments.parse_args()
    problem = Problem(784, 10, (128, 128, 128), 32, 0.1, epochs=asked.epochs)
    distances = []  # (networks, controls, epochs)
    with tempfile.TemporaryDirectory() as folder:
        data = load_dataset(data_dir=None, seed=0).first(asked.steps * problem.batch_size, 1000)
        data.save(place := Path(folder, "data"))
        for run in range(asked.networks):
            tasks = [Task(run, "float32", draw) for draw in range(CONTROLS)]
            (oracle,) = compute(problem, place, [Task(run)], np.inf).values()
            controls = compute(problem, place, tasks, np.inf).values()
            seen = [spread_of(problem, run, oracle, control) for control in controls]
            distances.append([[epoch.apart for epoch in spreads] for spreads in seen])
    for epoch, of_networks in enumerate(np.array(distances).transpose(2, 0, 1), start=1):
        shares = {count: np.mean(refusals(of_networks, count)) for count in range(1, MOST + 1)}
        told = ", ".join(f"{share:.1%} by {count}" for count, share in shares.items())
        sys.stdout.write(f"epoch {epoch}: {told}\n")


def refusals(of_networks: FloatArray, count: int) -> list[bool]:
    """Whether so many controls refuse another of their network, for distances (networks, controls)."""
    return [
        network[stage] > path_limit(max(network[list(judges)]))
        for network in of_networks
        for stage in range(CONTROLS)
        for judges in combinations([number for number in range(CONTROLS) if number != stage], count)
    ]


if __name__ == "__main__":
    main()
