"""A GPU's limits: each method measures one primitive and returns its samples.

On the device, a kernel or a graph repeats the primitive at two counts. The difference of both times, divided by the
difference of the counts, has no start-up cost in it. On the host, the host's clock times the call from Python, as the
rungs pay for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, ObjectCode, Stream, launch

from common.cost import Precision
from common.cuda.compile import cached_cubin
from common.cuda.gpu import Gpu

SOURCE = Path(__file__).with_name("primitives.cu")

SAMPLES = 15  # of each primitive, after one discarded
WARM_UP_S = 0.3  # of load raise an idle GPU's clocks
THREADS = 256  # a block, as in most kernels of the ladder
PORTABLE_CLUSTER = 8  # blocks; larger clusters need an attribute
LAUNCHES_IN_A_ROW = 500  # fewer than the driver queues before the host has to wait
WORDS_PER_LINE = 32  # 4-byte words of a cache line
SECOND_STREAM_LAUNCHES = 20  # one launch alone has no effect
CHAIN_LINES = 1 << 13  # 1 MiB: exceeds L1, fits in every L2
READ_THREADS = 512  # a block of read_repeatedly
READ_BLOCKS = 2  # for each multiprocessor: 1,024 reading threads
READ_BYTES = 16  # a load
READS_AT_ONCE = 8  # primitives.cu
MIN_READ_BYTES = 1 << 30  # a few hundred us
PEERS = (0, 1)  # the GPUs between which messages go
PATTERN = 0x5A  # fills memory before it is copied or read: neither zeros nor old contents

Enqueue = Callable[..., None]


class Primitives:
    """The first visible GPU at raised clocks. Every method returns `SAMPLES` samples, times in us unless said.

    Raises the CUDA libraries' errors if the GPU lacks a primitive or memory for it.
    """

    def __init__(self) -> None:
        self._gpu = Gpu()
        self._device = Device(0)
        self._stream = Stream.from_handle(self._gpu.stream_handle)
        properties = self._device.properties
        self.multiprocessors: int = properties.multiprocessor_count
        self.l2_bytes: int = properties.l2_cache_size
        shared, registers = properties.max_shared_memory_per_multiprocessor, properties.max_registers_per_multiprocessor
        self.on_chip_bytes: int = self.multiprocessors * (shared + 4 * registers)
        self.block_shared_bytes = self._gpu.block_shared_bytes
        self._beyond_l2 = max(16 * self.l2_bytes, 256 << 20)  # bytes
        cubin = cached_cubin(SOURCE, f"sm_{self._device.arch}")
        self._program = ObjectCode.from_cubin(cubin.code, name=SOURCE.name)
        self._empty = self._gpu.kernel(SOURCE, "empty")
        self._peers_open = False
        self._warm_up()

    def launch(self) -> list[float]:
        """The host's time for a launch from Python; the empty kernel is shorter."""
        return self._host_us(lambda: self._empty(1, 1))

    def launch_and_wait(self) -> list[float]:
        """A launch and a wait for the stream."""
        wait = self._gpu.stream.synchronize

        def step() -> None:
            self._empty(1, 1)
            wait()

        return self._host_us(step)

    def launch_and_read(self) -> list[float]:
        """A launch and a copy of four bytes to pageable host memory, as in the rungs."""
        source = cupy.empty(1, np.int32)

        def step() -> None:
            self._empty(1, 1)
            self._gpu.download(source)

        return self._host_us(step)

    def graph_node(self, blocks: int) -> list[float]:
        """A graph node with `blocks` blocks that reads its predecessor's output."""
        return self._node_us(self._kernel("pass_on", blocks), blocks)

    def dependent_graph_node(self) -> list[float]:
        """A graph node of one block with programmatic dependent launch; needs sm_90."""
        return self._node_us(self._kernel("pass_on_early", 1, programmatic_stream_serialization=True), 1)

    def graph_node_after_two_streams(self) -> list[float]:
        """A node with a block on every multiprocessor after kernels ran on two streams, a lasting slowdown."""
        beside = cupy.cuda.Stream(non_blocking=True)
        empty, config = self._program.get_kernel("empty"), LaunchConfig(grid=1, block=1)
        for _ in range(SECOND_STREAM_LAUNCHES):
            launch(Stream.from_handle(beside.ptr), config, empty)
        beside.synchronize()
        return self.graph_node(self.multiprocessors)

    def block_barrier(self) -> list[float]:
        """__syncthreads of a block of 256 threads."""
        return self._round_us(self._kernel("block_barrier", 1), 20_000)

    def grid_barrier(self) -> list[float]:
        """A hand-written barrier of the whole grid, one block on every multiprocessor."""
        barrier = self._kernel("grid_barrier", self.multiprocessors, is_cooperative=True)
        arrived = cupy.empty(1, np.uint32)
        self._gpu.zero(arrived)
        return self._round_us(lambda rounds: barrier(arrived.data.ptr, rounds), 500)

    def cluster_barrier(self, blocks: int) -> list[float]:
        """A barrier of the blocks of one cluster; needs sm_90."""
        return self._round_us(self._cluster("cluster_barrier", blocks), 2_000)

    def cluster_hop(self, blocks: int) -> list[float]:
        """256 bytes to the neighbour's shared memory and a cluster barrier; needs sm_90."""
        return self._round_us(self._cluster("cluster_hop", blocks), 2_000)

    def load_latency(self) -> list[float]:
        """A dependent load from L2."""
        order = np.random.default_rng(0).permutation(CHAIN_LINES).astype(np.uint32) * WORDS_PER_LINE
        host = np.zeros(CHAIN_LINES * WORDS_PER_LINE, np.uint32)
        host[order] = np.roll(order, -1)
        chain, end = self._gpu.upload(host), cupy.empty(1, np.uint32)
        follow = self._kernel("follow_chain", 1, threads=1)
        return self._round_us(lambda steps: follow(chain.data.ptr, end.data.ptr, steps), CHAIN_LINES)

    def memory_copy(self) -> list[float]:
        """The driver's copy of memory far larger than L2, in GB/s, bytes read plus bytes written."""
        size = self._beyond_l2
        source, target = (cupy.empty(size, np.uint8) for _ in range(2))
        source.data.memset_async(PATTERN, size, self._gpu.stream)
        times = self._device_us(lambda: target.data.copy_from_device_async(source.data, size, self._gpu.stream))
        return [2 * size / us / 1e3 for us in times]

    def memory_read(self) -> list[float]:
        """Reads of memory far larger than L2 by all multiprocessors, in GB/s."""
        return self._batches(*self._reader(self._beyond_l2))

    def memory_update(self) -> list[float]:
        """The same memory read, and stored in place, in GB/s, bytes read plus bytes written."""
        update, bytes_a_batch = self._reader(self._beyond_l2, updates=True)
        return self._batches(update, 2 * bytes_a_batch)

    def l2_read(self) -> list[float]:
        """Repeated reads of a third of L2 by all multiprocessors, past their L1, in GB/s."""
        return self._batches(*self._reader(self.l2_bytes // 3))

    def _batches(self, enqueue: Callable[[np.int32], None], bytes_a_batch: int) -> list[float]:
        """GB/s of batches."""
        return [bytes_a_batch / us / 1e3 for us in self._round_us(enqueue, MIN_READ_BYTES // bytes_a_batch)]

    def product(self, precision: Precision) -> list[float]:
        """A large matrix product in this precision, in TFLOP/s; needs cuBLASLt."""
        from common.cuda.large_product import LargeProduct

        product = LargeProduct(self._gpu, precision)
        self._keep_busy(product)  # until the clocks settle at the power of such a product
        return [product.flops / us / 1e6 for us in self._device_us(product)]

    def peer_hop(self) -> list[float]:
        """A word's way into the second GPU's memory, half of its way to and fro, by kernels that run on both."""
        self._open_peers()
        hop, config = self._program.get_kernel("peer_hop"), LaunchConfig(grid=1, block=1)
        words, streams = [], [self._gpu.stream]
        for gpu in PEERS:
            with cupy.cuda.Device(gpu):
                words.append(cupy.zeros(1, np.uint32))
                cupy.cuda.runtime.deviceSynchronize()
        with cupy.cuda.Device(PEERS[1]):
            streams.append(cupy.cuda.Stream(non_blocking=True))
        before = 0

        def enqueue(rounds: np.int32) -> None:
            nonlocal before
            for gpu in PEERS:
                own, other = words[gpu].data.ptr, words[1 - gpu].data.ptr
                with cupy.cuda.Device(gpu):
                    begun = np.int32(gpu == 0), np.uint32(before), rounds
                    launch(Stream.from_handle(streams[gpu].ptr), config, hop, own, other, *begun)
            before += int(rounds)

        return [us / 2 for us in self._round_us(enqueue, 2_000)]

    def peer_copy(self) -> list[float]:
        """The driver's copy into the second GPU's memory, in GB/s."""
        self._open_peers()
        size, copy = self._beyond_l2, cupy.cuda.runtime.memcpyPeerAsync
        source = cupy.empty(size, np.uint8)
        source.data.memset_async(PATTERN, size, self._gpu.stream)
        with cupy.cuda.Device(PEERS[1]):
            target = cupy.empty(size, np.uint8)
        ends = target.data.ptr, PEERS[1], source.data.ptr, PEERS[0]
        return [size / us / 1e3 for us in self._device_us(lambda: copy(*ends, size, self._gpu.stream_handle))]

    def _open_peers(self) -> None:
        """Let both GPUs access each other's memory."""
        if not self._peers_open:
            for gpu in PEERS:
                with cupy.cuda.Device(gpu):
                    cupy.cuda.runtime.deviceEnablePeerAccess(1 - gpu)
            self._peers_open = True

    def _warm_up(self) -> None:
        """Load the GPU until its clocks rise."""
        read, bytes_a_batch = self._reader(self.l2_bytes // 3)
        self._keep_busy(lambda: read(np.int32(MIN_READ_BYTES // bytes_a_batch)))

    def _keep_busy(self, enqueue: Callable[[], None]) -> None:
        """Repeat a task for WARM_UP_S."""
        begin = time.perf_counter()
        while time.perf_counter() - begin < WARM_UP_S:
            enqueue()
            self._gpu.stream.synchronize()

    def _reader(self, size: int, *, updates: bool = False) -> tuple[Callable[[np.int32], None], int]:
        """A function that enqueues batches of reads, or updates, of `size` bytes; and the bytes of one batch."""
        blocks = READ_BLOCKS * self.multiprocessors
        stride = blocks * READ_THREADS
        count = max(size // (stride * READ_BYTES), 1) * stride
        data, sink = cupy.empty(count * READ_BYTES, np.uint8), cupy.empty(1, np.uint32)
        data.data.memset_async(PATTERN, data.nbytes, self._gpu.stream)
        arrays = (data,) if updates else (data, sink)
        name = "update_repeatedly" if updates else "read_repeatedly"
        kernel = self._kernel(name, blocks, threads=READ_THREADS)

        def read(batches: np.int32) -> None:
            kernel(*(array.data.ptr for array in arrays), np.int32(count), batches)

        return read, stride * READ_BYTES * READS_AT_ONCE

    def _kernel(self, name: str, blocks: int, threads: int = THREADS, **options: Any) -> Enqueue:
        """A function that enqueues a kernel; its arguments are addresses and NumPy 32-bit counts."""
        return self._launcher(self._program.get_kernel(name), LaunchConfig(grid=blocks, block=threads, **options))

    def _cluster(self, name: str, blocks: int) -> Enqueue:
        """The same for one cluster of `blocks` blocks."""
        kernel = self._program.get_kernel(name)
        if blocks > PORTABLE_CLUSTER:
            allowed = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            device = driver.CUdevice(self._device.device_id)
            (status,) = driver.cuKernelSetAttribute(allowed, 1, kernel.handle, device)
            if status != driver.CUresult.CUDA_SUCCESS:
                raise RuntimeError(f"clusters of {blocks} blocks: refused by this GPU ({status.name})")
        return self._launcher(kernel, LaunchConfig(grid=1, cluster=blocks, block=THREADS))

    def _launcher(self, kernel: Any, config: Any) -> Enqueue:
        return lambda *arguments: launch(self._stream, config, kernel, *arguments)

    def _host_us(self, step: Callable[[], None]) -> list[float]:
        """The host's time of one step of many in a row."""

        def sample() -> float:
            self._gpu.stream.synchronize()
            begin = time.perf_counter()
            for _ in range(LAUNCHES_IN_A_ROW):
                step()
            return (time.perf_counter() - begin) / LAUNCHES_IN_A_ROW * 1e6

        return _samples(sample)

    def _node_us(self, enqueue: Enqueue, blocks: int, nodes: int = 500) -> list[float]:
        """The device's time of one node in a chain of dependent graph nodes."""
        value = cupy.zeros(blocks * THREADS, np.uint32)

        def chain(count: int) -> Callable[[], None]:
            def enqueue_all() -> None:
                for _ in range(count):
                    enqueue(value.data.ptr)

            return self._gpu.capture(enqueue_all)

        replays = {count: chain(count) for count in (nodes, 3 * nodes)}
        return self._round_us(lambda count: replays[int(count)](), nodes)

    def _round_us(self, enqueue: Callable[[np.int32], None], rounds: int) -> list[float]:
        """The device's time of one round: the difference between `3 * rounds` and `rounds`, divided."""
        few, many = np.int32(rounds), np.int32(3 * rounds)

        def sample() -> float:
            longer = self._between_events(lambda: enqueue(many)) - self._between_events(lambda: enqueue(few))
            return longer / (2 * rounds)

        return _samples(sample)

    def _device_us(self, enqueue: Callable[[], None]) -> list[float]:
        """The device's time of work long enough to be timed directly."""
        return _samples(lambda: self._between_events(enqueue))

    def _between_events(self, enqueue: Callable[[], None]) -> float:
        """The time of one run, in us; a run before it keeps the device busy while the host enqueues."""
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        enqueue()
        begin.record(self._gpu.stream)
        enqueue()
        end.record(self._gpu.stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(begin, end)) * 1e3


def _samples(sample: Callable[[], float]) -> list[float]:
    """SAMPLES samples, after a first one that loads and allocates."""
    sample()
    return [sample() for _ in range(SAMPLES)]
