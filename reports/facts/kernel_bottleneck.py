"""The likely cause where kernels take most of a step, and one thing to try; chosen by rules.

A cluster of sixteen blocks cannot grow, and the launch shape of a library's kernel is not the user's to choose.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from ladder.records.limits_record import DesignFloor, Limit
from ladder.records.profile import KernelUse, Profile
from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.profiles import kernel_name, overlap
from reports.facts.time_breakdown import Profiled, fitted

FLOAT32_BYTES = 4
MULTIPROCESSORS = 128  # about those of an A100 (108) or H100 (132), for a run that did not record its GPU's
WHOLE = 0.995  # share of a step that is told as the whole step
BUSY = 0.5  # share of the multiprocessors; a kernel with fewer blocks leaves more of them idle
LOW_OCCUPANCY = 0.25  # share of a multiprocessor's warps; with fewer, none may be ready while others wait for memory
MOST_THREADS = 2048  # resident on a multiprocessor of sm_80, sm_90 or sm_100; others hold fewer
LARGEST_CLUSTER = 16  # blocks; the most on any GPU
NEAR_MEMORY = 0.5  # share of the memory's rate; a faster kernel cannot gain much but by moving less
NEAR_ARITHMETIC = 0.5  # share of the kernels' time that the products take at the GPU's own rate
MANY_BYTES = 0.25  # share of a step in which memory reads and writes all weights once
TOLD = 0.05  # share of a step; a lower floor of its design tells nothing
EXPLAINING = 0.5  # share of a step; a lower floor of its design does not tell what bounds it
EXCHANGES = "exchanges between blocks"
MANY_KERNELS = 0.2  # share of the kernels' time that empty ones would take
LIBRARY = re.compile(r"cutlass_|sm\d+_|nvjet|ampere_|volta_|sgemm|gemvN|gemv2|gemmSN|splitK|cudnn")


class Advice(NamedTuple):
    """What bounds a step and what to try, both whole sentences."""

    bound: str
    next: str

    def __str__(self) -> str:
        return f"{self.bound} {self.next}".strip()


@dataclass(frozen=True)
class Case:
    """A profiled stage, and the run that it belongs to."""

    run: Results
    one: Profiled

    @property
    def profile(self) -> Profile:
        """The shown profile."""
        return self.one.profile

    @property
    def multiprocessors(self) -> int:
        """Those of the run's GPU, or a typical number."""
        return self.run.limits.chip.multiprocessors if self.run.limits else MULTIPROCESSORS

    @property
    def run_by_framework(self) -> bool:
        """Whether a framework made all kernels."""
        return self.one.stage.group == "reference"

    def limit(self, name: str) -> Limit | None:
        """A measured primitive of the run's GPU."""
        return self.run.limits.get(name) if self.run.limits else None


def kernels_advice(case: Case, share: str) -> Advice:
    """The cause and the advice where kernels take most of a step, namely this share."""
    profile = case.profile
    if not profile.kernels:
        return Advice(f"Kernels take {share}. The profile does not name them.", "")
    slowest = max(profile.kernels, key=lambda kernel: kernel.us_per_step)
    if profile.kernels_per_step < 1:
        advice = _persistent(case, slowest)
    elif case.one.is_entangled:
        advice = _entangled(profile)
    else:
        advice = _memory(case) or _arithmetic(case) or _boundaries(case, slowest) or _slowest(case, slowest)
    return advice._replace(bound=f"Kernels take {share}{_rate(case)}. {advice.bound}")


def _rate(case: Case) -> str:
    """The rate of the products over the kernels' time, and its share of the most that their precision reached here.

    No share for a kernel that splits numbers for another precision's units, which may be faster.
    """
    busy_us, precision, design = fitted(case.profile).kernels_us, case.one.stage.precision, case.one.design
    if busy_us <= 0:
        return ""
    busy_us = case.one.step_us if busy_us > WHOLE * case.one.step_us else busy_us
    rate, most = case.run.problem.product_operations / busy_us / 1e6, case.limit(f"gemm_{precision}")
    is_split = design is not None and " x " in design.arithmetic
    share = f", {numbers.share(rate / most.median)} of {numbers.precision(precision)}'s peak" if most else ""
    return f" at {rate:.3g} TFLOP/s{share if most and rate <= most.median and not is_split else ''}"


def _entangled(profile: Profile) -> Advice:
    bound = (
        f"Each starts early, perhaps steps ahead, and waits for the one before it: none of the "
        f"{numbers.per_step(profile.kernels_per_step)} per step can be blamed alone."
    )
    return Advice(bound, "Fuse neighbours to run fewer.")


def _persistent(case: Case, kernel: KernelUse) -> Advice:
    """The advice on a kernel that runs many steps: it has no neighbour, and as many blocks as its design allows."""
    problem, chip = case.run.problem, case.run.limits.chip if case.run.limits else None
    weights = FLOAT32_BYTES * sum(problem.weights)
    beside = [
        f"{kernel_name(one.name)} with {numbers.count(one.blocks, 'block')}"
        for one in case.profile.kernels
        if one is not kernel
    ]
    aside = f", beside {numbers.listing(beside)}" if beside else ""
    told = f"{kernel_name(kernel.name)} runs many steps in one launch, with {_blocks(kernel)}{aside}"
    if chip and weights > chip.on_chip_bytes:
        told += (
            f". Its {numbers.size(weights)} of weights exceed the {numbers.size(chip.on_chip_bytes)} of shared memory "
            "and registers, so each step reads them again."
        )
        return Advice(told, "Stream them through a kernel for each product.")
    bound_by = EXCHANGES
    if design := case.one.design:
        share, bound_by = design.total_us / case.one.step_us, largest_part(design)
        least = f"{numbers.microseconds(design.total_us)} us per step ({numbers.rough_share(share)})"
        if share >= TOLD:
            told += f". Its design takes at least {least}, mostly {bound_by}"
            told += "; the rest is not attributed" * (share < EXPLAINING)
    if problem.hidden and case.one.stage.precision == "float32":
        return Advice(f"{told}.", "Multiply and exchange 16-bit numbers: fewer instructions, and half the bytes.")
    if bound_by != EXCHANGES:
        return Advice(f"{told}.", "")
    if beside:
        return Advice(f"{told}.", "Shorten both its products and its exchanges, which overlap.")
    return Advice(f"{told}.", "Exchange less between blocks: fewer times per step, or fewer bytes.")


def largest_part(design: DesignFloor) -> str:
    """What takes longest in the floor of a design."""
    parts = {
        "launches": design.launching_us, "kernels": design.kernels_us,
        EXCHANGES: design.exchanging_us, "waits": design.waiting_us,
    }  # fmt: skip
    return max(parts, key=parts.__getitem__)


def _memory(case: Case) -> Advice | None:
    """The advice on weights that no cache holds; None if they are a small part of the step."""
    weights, copy = FLOAT32_BYTES * sum(case.run.problem.weights), case.limit("memory_copy")
    if case.run.limits is None or copy is None or weights <= case.run.limits.chip.l2_bytes:
        return None
    us = 2 * weights / copy.median / 1e3
    if us < MANY_BYTES * case.one.step_us:
        return None
    bound = (
        f"The weights ({numbers.size(weights)}) exceed the L2 cache ({numbers.size(case.run.limits.chip.l2_bytes)}): "
        f"memory takes {numbers.microseconds(us)} us to read and write them once."
    )
    return Advice(bound, "Make fewer passes over them, or store fewer bytes a weight.")


def _arithmetic(case: Case) -> Advice | None:
    """The advice on a library's products at their full rate; None below it, and for kernels that may split numbers."""
    rate = case.limit(f"gemm_{case.one.stage.precision}")
    products = [kernel for kernel in case.profile.kernels if kernel.kind == "gemm"]
    if rate is None or not products or not all(_is_foreign(case, kernel) for kernel in products):
        return None
    us = case.run.problem.product_operations / rate.median / 1e6
    if not NEAR_ARITHMETIC <= us / fitted(case.profile).kernels_us <= 1:
        return None
    told = (
        f"Matrix products take {numbers.microseconds(us)} us of them at {rate.median:.0f} TFLOP/s, the most that "
        f"{numbers.precision(case.one.stage.precision)} reached on this GPU."
    )
    if case.one.stage.precision == "float32":
        return Advice(told, "Multiply on tensor cores, in a lower precision.")
    return Advice(told, "Little is left to gain on this GPU: leave it, or shrink the network or the batch.")


def _boundaries(case: Case, slowest: KernelUse) -> Advice | None:
    """The advice on many short kernels; None if the slowest one takes more than starting and ending all of them."""
    node, count, whole = case.limit("graph_node"), case.profile.kernels_per_step, fitted(case.profile).kernels_us
    if node is None or count * node.median <= max(slowest.us_per_step, MANY_KERNELS * whole):
        return None
    bound = (
        f"There are {numbers.per_step(count)} per step, {numbers.microseconds(whole / count)} us each on average; as "
        f"many empty ones would take {numbers.microseconds(count * node.median)} us"
        f"{' one after the other' if overlap(case.profile) else ''}."
    )
    if case.run_by_framework:
        return Advice(bound, "Fuse neighbours in a hand-written kernel.")
    return Advice(bound, "Fuse neighbours, or run whole epochs in one kernel.")


def _slowest(case: Case, kernel: KernelUse) -> Advice:
    waits = " (kernels overlap here, so it may only wait for another one)" if overlap(case.profile) else ""
    why, advice = _why_slow(case, kernel)
    slowest = f"{kernel_name(kernel.name)} with {numbers.microseconds(kernel.us_per_step)} us per step"
    return Advice(f"The slowest is {slowest}{waits}: {why}.", _foreign_advice(case, kernel) or advice)


def _why_slow(case: Case, kernel: KernelUse) -> tuple[str, str]:
    """The reason, and the advice on a kernel of the stage's own."""
    if kernel.blocks < BUSY * case.multiprocessors:
        idle = f"{_rest(case, kernel)} idle"
        if _is_largest_cluster(kernel):
            return f"it is {_blocks(kernel)}, and {idle}", "Shorten its exchanges, or move work to other kernels."
        leave = "leaves" if kernel.blocks == 1 else "leave"
        return f"its {_blocks(kernel)} {leave} {idle}", "Split its work over more blocks."
    if _waits_for_room(case, kernel):
        return (
            f"{kernel.registers} registers a thread and {numbers.size(kernel.shared_bytes)} of shared memory a block "
            f"leave room for {numbers.share(kernel.occupancy)} of a multiprocessor's warps, and its {kernel.blocks:,} "
            "blocks take turns",
            "Use fewer registers or less shared memory.",
        )
    copy = case.limit("memory_copy")
    if kernel.bytes is not None and copy is not None:
        share = kernel.bytes / kernel.us_each / 1e3 / copy.median
        moved = (
            f"it moves {numbers.size(kernel.bytes)} at {numbers.bandwidth(kernel.bytes, kernel.us_each)}, "
            f"{numbers.share(share)} of the memory's rate"
        )
        if share >= NEAR_MEMORY:
            return moved, "Fuse it with a neighbour to move less."
        if kernel.kind == "gemm":
            return moved, "Use each loaded number more often: tiles in shared memory and registers, or a library."
        return moved, "Change its access pattern, or fuse it with a neighbour."
    filled = "fill the GPU" if kernel.blocks >= case.multiprocessors else "occupy most multiprocessors"
    if kernel.kind == "update":
        advice = "Join the update to the products that compute its gradients."
    elif kernel.kind == "gemm" and case.one.stage.precision == "float32":
        advice = "Round its factors to 16 bits for the tensor cores, or fuse it with a neighbour."
    else:
        advice = "Fuse it with a neighbour, so that its result stays on the chip."
    return f"its {kernel.blocks:,} blocks {filled}", advice


def _foreign_advice(case: Case, kernel: KernelUse) -> str:
    """The advice on a kernel that a library or a framework made; empty on the stage's own."""
    if not _is_foreign(case, kernel):
        return ""
    if kernel.kind == "gemm":
        return "Try another algorithm of the library, or a kernel for these sizes."
    return "Fuse it with a neighbour in a hand-written kernel."


def _rest(case: Case, kernel: KernelUse) -> str:
    """The multiprocessors without a block of this kernel, in words."""
    if case.run.limits is None:
        return "most multiprocessors"
    return f"{case.multiprocessors - kernel.blocks} of {case.multiprocessors} multiprocessors"


def _is_foreign(case: Case, kernel: KernelUse) -> bool:
    """Whether a library or a framework made the kernel, so that its launch shape is theirs to choose."""
    return case.run_by_framework or LIBRARY.match(kernel.name) is not None


def _waits_for_room(case: Case, kernel: KernelUse) -> bool:
    """Whether few warps fit on a multiprocessor, and blocks wait for others to end."""
    if kernel.occupancy is None or kernel.occupancy >= LOW_OCCUPANCY:
        return False
    return kernel.blocks * kernel.threads > case.multiprocessors * kernel.occupancy * MOST_THREADS


def _is_largest_cluster(kernel: KernelUse) -> bool:
    """Whether the kernel is one cluster that cannot have more blocks."""
    return LARGEST_CLUSTER <= kernel.cluster == kernel.blocks


def _blocks(kernel: KernelUse) -> str:
    if _is_largest_cluster(kernel):
        return f"one cluster of {kernel.cluster} blocks, the most that a cluster can have"
    return numbers.count(kernel.blocks, "block")
