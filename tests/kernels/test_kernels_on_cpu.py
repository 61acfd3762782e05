"""Every kernel, executed on the CPU, against its NumPy double; its mutants are caught."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from pkgutil import iter_modules
from random import Random

import numpy as np
import pytest

from common.cuda.dependent_launch import waits
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, Kernel, cuda_files, kernels_in
from tests.cpu_cuda.shim import Shim, Toolchain, requires_compiler
from tests.kernels import doubles, own
from tests.kernels.cases import Args, Case
from tests.kernels.mutants import is_caught, mutants
from tests.kernels.on_cpu import cases_of, launch
from tests.seeds import SEED

DEPENDENT = {source for source in cuda_files(KERNELS_FOLDER) if waits(source)}
KERNELS = kernels_in(KERNELS_FOLDER)
CAUGHT, TRIED = 2, 8  # of the mutants drawn: so many are caught; some have no effect, or do not compile

# Of a kernel that is compiled for each case: those in which its mutants show; they run in two orders of threads.
TELLING = {
    "last_layer": (8, 5, 4, 9),
    "ring_forward": (3, 13),
    "ring_back": (5, 18, 12),
    "hidden_head": (5, 2),
    "hidden_layers": (3, 4),
    "update_all": (6,),
    "images_product": (6, 7),
    "update_by_products": (5, 1),
    "cluster_ahead": (1,),
    "fleet_columns": (1, 0),
    "grid_messages": (1, 2),
    "grid_pairs": (2, 1),
    "divided_batch": (1, 3),
    "divided_hidden": (1, 2),
    "fleet_grid": (2,),
    "streaming_epoch": (3, 1),
    "stationary_epoch": (0, 4, 2),
    "persistent_cluster": (1, 4),
    "cluster_mlp": (6,),
}

pytestmark = requires_compiler


def telling_cases(kernel: Kernel) -> Sequence[int]:
    """The cases in which its mutants show; of a kernel that is compiled once, some of all."""
    cases = len(cases_of(kernel.name))
    return TELLING.get(kernel.name, range(0, cases, -(-cases // 4)))


def assert_same_bits(first: Args, other: Args, case: Case) -> None:
    for name, value in first.items():
        assert np.asarray(value).tobytes() == np.asarray(other[name]).tobytes(), f"{case}: {name} varies"


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_kernel_does_what_its_double_does(kernel: Kernel, shim: Shim) -> None:
    telling = telling_cases(kernel)
    for at, case in enumerate(cases_of(kernel.name)):
        assert list(case.args) == [parameter.name for parameter in kernel.parameters]
        # One for dependent launches touches no tensor before its wait, and computes the same.
        is_second = at % 2 == 1 or at in telling
        launched = launch(shim, case, order=1 + is_second, dependent=is_second and kernel.source in DEPENDENT)
        assert case.mismatch(launched) == ""
        if at in telling:
            first = launch(shim, case, order=1)
            if kernel.claims_repeatable:
                assert_same_bits(first, launched, case)
            else:
                assert case.mismatch(first) == ""


def test_no_double_is_left_of_a_kernel_that_is_gone() -> None:
    functions = {name for name, value in vars(doubles).items() if getattr(value, "__module__", "") == doubles.__name__}
    names = {name for name in functions if not name.startswith("_")}  # others are helpers
    names |= {module.name for module in iter_modules(own.__path__)}
    assert names <= {kernel.name for kernel in kernels_in(KERNELS_FOLDER)}


def test_a_kernel_without_cases_is_an_error() -> None:
    with pytest.raises(LookupError, match="forgotten_kernel: has no double or no cases"):
        cases_of("forgotten_kernel")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_mutants_of_a_kernel_are_caught(kernel: Kernel, tmp_path: Path, toolchain: Toolchain) -> None:
    made, telling = mutants(kernel), telling_cases(kernel)
    drawn = Random(f"{kernel.name} {SEED}").sample(made, min(TRIED, len(made)))
    caught = (is_caught(mutant, kernel, telling, tmp_path, toolchain) for mutant in drawn)
    assert sum(islice(filter(None, caught), CAUGHT)) == CAUGHT, list(map(str, drawn))
