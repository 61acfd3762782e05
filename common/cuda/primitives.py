"""What one GPU can do at best: each method measures one primitive and returns its samples.

On the device a primitive is repeated inside one kernel or one graph, at two counts, and divided is the difference of
the two times, in which whatever it costs to begin and to end has cancelled. On the host it is timed with the host's
own clock, as the ladder's rungs pay for it: from Python.
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

SAMPLES = 15  # of each primitive, after one that does not count
WARM_UP_S = 0.3  # of load, after which an idle GPU has its clocks up
THREADS = 256  # a block, as most kernels of the ladder have
PORTABLE_CLUSTER = 8  # blocks; a kernel has to ask for more
BACK_TO_BACK = 500  # launches in a row: fewer than the driver queues before it makes the host wait
LINE = 32  # of 4-byte words: what one load brings into the cache
ON_SECOND_STREAM = 20  # kernels; one alone changes nothing
CHAIN_LINES = 1 << 13  # 1 MiB: more than L1 has, and in every L2
READ_THREADS = 512  # a block of read_repeatedly
READ_BLOCKS = 2  # for each multiprocessor, so that 1,024 threads of it read at once
READ_BYTES = 16  # each load
READS_AT_ONCE = 8  # primitives.cu
READ_AT_LEAST = 1 << 30  # bytes; a few hundred us
PATTERN = 0x5A  # in memory that is copied or read: neither zeros nor whatever lay there

Enqueue = Callable[..., None]


class Primitives:
    """The first visible GPU with its clocks up. Every method returns `SAMPLES` samples, of times in us.

    Raises what the CUDA libraries raise where the GPU does not support a primitive, or has too little memory for it.
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
        cubin = cached_cubin(SOURCE, f"sm_{self._device.arch}")
        self._program = ObjectCode.from_cubin(cubin.code, name=SOURCE.name)
        self._empty = self._gpu.kernel(SOURCE, "empty")
        self._warm_up()

    def launch(self) -> list[float]:
        """A launch from Python, one after the other: what the host pays, since an empty kernel is shorter."""
        return self._host_us(lambda: self._empty(1, 1))

    def launch_and_wait(self) -> list[float]:
        """A launch, and the wait until the stream is done."""
        wait = self._gpu.stream.synchronize

        def step() -> None:
            self._empty(1, 1)
            wait()

        return self._host_us(step)

    def launch_and_read(self) -> list[float]:
        """A launch, and four bytes copied to the host's ordinary memory as the rungs copy theirs."""
        source = cupy.empty(1, np.int32)

        def step() -> None:
            self._empty(1, 1)
            self._gpu.download(source)

        return self._host_us(step)

    def graph_node(self, blocks: int) -> list[float]:
        """A kernel of so many blocks in a graph, each node reading what the one before has written."""
        return self._node_us(self._kernel("pass_on", blocks), blocks)

    def dependent_graph_node(self) -> list[float]:
        """The same with one block and programmatic dependent launch; needs sm_90."""
        return self._node_us(self._kernel("pass_on_early", 1, programmatic_stream_serialization=True), 1)

    def graph_node_after_two_streams(self) -> list[float]:
        """A node with a block on every multiprocessor, once there were kernels on two streams; it stays so."""
        beside = cupy.cuda.Stream(non_blocking=True)
        empty, config = self._program.get_kernel("empty"), LaunchConfig(grid=1, block=1)
        for _ in range(ON_SECOND_STREAM):
            launch(Stream.from_handle(beside.ptr), config, empty)
        beside.synchronize()
        return self.graph_node(self.multiprocessors)

    def block_barrier(self) -> list[float]:
        """__syncthreads of a block of 256 threads."""
        return self._round_us(self._kernel("block_barrier", 1), 20_000)

    def grid_barrier(self) -> list[float]:
        """A hand-written barrier of one block on every multiprocessor."""
        barrier = self._kernel("grid_barrier", self.multiprocessors, is_cooperative=True)
        arrived = cupy.empty(1, np.uint32)
        self._gpu.zero(arrived)
        return self._round_us(lambda rounds: barrier(arrived.data.ptr, rounds), 500)

    def cluster_barrier(self, blocks: int) -> list[float]:
        """A barrier of the blocks of one cluster; needs sm_90."""
        return self._round_us(self._cluster("cluster_barrier", blocks), 2_000)

    def cluster_hop(self, blocks: int) -> list[float]:
        """256 bytes into the neighbour's shared memory and a barrier of the cluster; needs sm_90."""
        return self._round_us(self._cluster("cluster_hop", blocks), 2_000)

    def load_latency(self) -> list[float]:
        """A load that L2 answers, with nothing else under way."""
        order = np.random.default_rng(0).permutation(CHAIN_LINES).astype(np.uint32) * LINE
        host = np.zeros(CHAIN_LINES * LINE, np.uint32)
        host[order] = np.roll(order, -1)
        chain, end = self._gpu.upload(host), cupy.empty(1, np.uint32)
        follow = self._kernel("follow_chain", 1, threads=1)
        return self._round_us(lambda steps: follow(chain.data.ptr, end.data.ptr, steps), CHAIN_LINES)

    def memory_copy(self) -> list[float]:
        """The driver's own copy of far more than L2 holds, in GB/s of bytes read and bytes written together."""
        size = max(16 * self.l2_bytes, 256 << 20)
        source, target = (cupy.empty(size, np.uint8) for _ in range(2))
        source.data.memset_async(PATTERN, size, self._gpu.stream)
        times = self._device_us(lambda: target.data.copy_from_device_async(source.data, size, self._gpu.stream))
        return [2 * size / us / 1e3 for us in times]

    def l2_read(self) -> list[float]:
        """A third of L2 read again and again by all multiprocessors, past their L1, in GB/s."""
        read, bytes_a_batch = self._reader()
        return [bytes_a_batch / us / 1e3 for us in self._round_us(read, READ_AT_LEAST // bytes_a_batch)]

    def product(self, precision: Precision) -> list[float]:
        """A large matrix product in this precision, in TFLOP/s; needs cuBLASLt."""
        from common.cuda.large_product import LargeProduct

        product = LargeProduct(self._gpu, precision)
        self._keep_busy(product)  # until the clocks are those at which the power of such a product lasts
        return [product.flops / us / 1e6 for us in self._device_us(product)]

    def _warm_up(self) -> None:
        """Load the GPU until its clocks are up."""
        read, bytes_a_batch = self._reader()
        self._keep_busy(lambda: read(np.int32(READ_AT_LEAST // bytes_a_batch)))

    def _keep_busy(self, enqueue: Callable[[], None]) -> None:
        """Repeat something for a while."""
        begin = time.perf_counter()
        while time.perf_counter() - begin < WARM_UP_S:
            enqueue()
            self._gpu.stream.synchronize()

    def _reader(self) -> tuple[Callable[[np.int32], None], int]:
        """What enqueues reads, given how many batches of them, and the bytes that one batch reads."""
        blocks = READ_BLOCKS * self.multiprocessors
        stride = blocks * READ_THREADS
        count = max(self.l2_bytes // 3 // (stride * READ_BYTES), 1) * stride
        data, sink = cupy.empty(count * READ_BYTES, np.uint8), cupy.empty(1, np.uint32)
        data.data.memset_async(PATTERN, data.nbytes, self._gpu.stream)
        kernel = self._kernel("read_repeatedly", blocks, threads=READ_THREADS)

        def read(batches: np.int32) -> None:
            kernel(data.data.ptr, sink.data.ptr, np.int32(count), batches)

        return read, stride * READ_BYTES * READS_AT_ONCE

    def _kernel(self, name: str, blocks: int, threads: int = THREADS, **options: Any) -> Enqueue:
        """What enqueues a kernel, given its arguments: addresses, and counts as NumPy's 32-bit integers."""
        return self._launcher(self._program.get_kernel(name), LaunchConfig(grid=blocks, block=threads, **options))

    def _cluster(self, name: str, blocks: int) -> Enqueue:
        """The same for one cluster of so many blocks."""
        kernel = self._program.get_kernel(name)
        if blocks > PORTABLE_CLUSTER:
            allowed = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            device = driver.CUdevice(self._device.device_id)
            (status,) = driver.cuKernelSetAttribute(allowed, 1, kernel.handle, device)
            if status != driver.CUresult.CUDA_SUCCESS:
                raise RuntimeError(f"clusters of {blocks} blocks are refused ({status.name})")
        return self._launcher(kernel, LaunchConfig(grid=1, cluster=blocks, block=THREADS))

    def _launcher(self, kernel: Any, config: Any) -> Enqueue:
        return lambda *arguments: launch(self._stream, config, kernel, *arguments)

    def _host_us(self, step: Callable[[], None]) -> list[float]:
        """The host's time for one of many steps in a row."""

        def sample() -> float:
            self._gpu.stream.synchronize()
            begin = time.perf_counter()
            for _ in range(BACK_TO_BACK):
                step()
            return (time.perf_counter() - begin) / BACK_TO_BACK * 1e6

        return _samples(sample)

    def _node_us(self, enqueue: Enqueue, blocks: int, nodes: int = 500) -> list[float]:
        """The device's time for one node of a graph in which each depends on the one before."""
        value = cupy.zeros(blocks * THREADS, np.uint32)

        def chain(count: int) -> Callable[[], None]:
            def enqueue_all() -> None:
                for _ in range(count):
                    enqueue(value.data.ptr)

            return self._gpu.capture(enqueue_all)

        replays = {count: chain(count) for count in (nodes, 3 * nodes)}
        return self._round_us(lambda count: replays[int(count)](), nodes)

    def _round_us(self, enqueue: Callable[[np.int32], None], rounds: int) -> list[float]:
        """The device's time for one round, given what enqueues so many: the difference of `rounds` and thrice those."""
        few, many = np.int32(rounds), np.int32(3 * rounds)

        def sample() -> float:
            longer = self._between_events(lambda: enqueue(many)) - self._between_events(lambda: enqueue(few))
            return longer / (2 * rounds)

        return _samples(sample)

    def _device_us(self, enqueue: Callable[[], None]) -> list[float]:
        """The device's time for work that is long enough to be timed at once."""
        return _samples(lambda: self._between_events(enqueue))

    def _between_events(self, enqueue: Callable[[], None]) -> float:
        """The time of one run, in us; another one before it keeps the device busy while the host hands it over."""
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        enqueue()
        begin.record(self._gpu.stream)
        enqueue()
        end.record(self._gpu.stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(begin, end)) * 1e3


def _samples(sample: Callable[[], float]) -> list[float]:
    """Samples after one that loads and allocates whatever there is to."""
    sample()
    return [sample() for _ in range(SAMPLES)]
