"""One GPU for the stages: a stream, memory, and kernels ready to launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import cupy
import numpy as np
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, ObjectCode, Stream, launch
from numpy.typing import DTypeLike, NDArray

from common.arrays import touched
from common.cuda import dependent_launch
from common.cuda.autotune import Trials
from common.cuda.compile import Macros, cached_cubin
from common.cuda.step_memory import StepAllocator, Tensor
from common.cuda.triton_code import TritonKernel
from common.errors import MisfitError
from common.ranks import Group

Grid = int | tuple[int, ...]

ARRAYS = {cupy.ndarray, Tensor}
ALLOCATORS: dict[str, Callable[[], Callable[[int], Any]]] = {
    "cudaMalloc": lambda: cupy.cuda.Memory,
    "cudaMallocAsync": lambda: cupy.cuda.malloc_async,
    "pool": lambda: cupy.cuda.MemoryPool().malloc,
}
PORTABLE_CLUSTER = 8  # blocks; larger clusters need an attribute
TOUCHED_BYTES = 1 << 24  # of a download whose memory several threads touch first: a step may wait for a small one


class Kernel:
    """A kernel, launched on its GPU's current stream.

    Pass scalars as NumPy scalars of the kernel's types and tensors as CuPy arrays. `cuda.core` launches: its 3.6 us of
    host time equal CuPy's launcher, and it supports clusters and cooperative grids.
    """

    def __init__(self, code: Any, gpu: Gpu, dependent: Callable[[bool], Kernel] | None = None, **shape: Any) -> None:
        self._code = code
        self._gpu = gpu
        self._dependent = dependent  # this kernel compiled for a chain, given whether to launch it early
        self._shape = shape
        self._configs: dict[tuple[Grid, Grid], Any] = {}  # cached: a new one costs as much as a launch

    def __call__(self, grid: Grid, block: Grid, *args: Any) -> None:
        """Enqueue `grid` blocks (or clusters) of `block` threads, sizes in CUDA's order (x, y, z)."""
        chain = self._gpu.chain
        if chain is not None and self._dependent is not None:
            self._dependent(chain.goes_on())(grid, block, *args)
            chain.extend()
            return
        config = self._configs.get((grid, block))
        if config is None:
            config = self._configs[grid, block] = LaunchConfig(grid=grid, block=block, **self._shape)
        passed = [a.data.ptr if type(a) in ARRAYS else a for a in args]
        launch(self._gpu.launch_stream, config, self._code, *passed)

    def early(self) -> Kernel:
        """The same kernel, launched before its predecessor ends; the kernel itself must wait."""
        return Kernel(self._code, self._gpu, **self._shape, programmatic_stream_serialization=True)

    def dependent(self) -> Kernel:
        """The same kernel launched early behind any kernel, the library's too; ValueError if it does not wait."""
        if self._dependent is None:
            raise ValueError("the kernel's file does not include dependent.cuh")
        return self._dependent(True)

    def clusters_at_once(self, block: Grid) -> int:
        """Number of its clusters, with `block` threads a block, that fit on the GPU at once; 0 if none does."""
        config = LaunchConfig(grid=1, block=block, **self._shape)
        try:
            return int(self._code.occupancy.max_active_clusters(config, stream=self._gpu.launch_stream))
        except Exception as error:
            if "CUDA_ERROR_INVALID_CLUSTER_SIZE" in str(error):  # the type is private to cuda.core
                return 0
            raise


class Gpu:
    """A visible GPU, with one stream for all work; `beside` opens parallel streams.

    The stream is a new one, or a library's, given by its handle, and becomes CuPy's current one. `group` is the ranks
    that train together, each on a GPU of its own; None for a GPU that trains alone.
    """

    kind: Literal["cpu", "gpu"] = "gpu"
    detail = ""
    keeps_columns = False

    def __init__(self, stream: int | None = None, group: Group | None = None) -> None:
        self.group = group
        self._device = Device(group.rank if group else 0)
        self._device.set_current()
        self.name: str = self._device.name
        self.has_clusters: bool = self._device.compute_capability.major >= 9
        self.capability = int(self._device.arch)  # 90 for sm_90
        # "a" enables features of this architecture alone, such as wgmma; a cubin is not portable anyway.
        self._architecture = f"sm_{self._device.arch}{'a' if self._device.arch == '90' else ''}"
        self.chain: dependent_launch.Chain | None = None
        self._branches: dict[int, Any] = {}
        own = cupy.cuda.Stream(non_blocking=True) if stream is None else cupy.cuda.ExternalStream(stream)
        self._enqueue_on(own)
        self._programs: dict[tuple[Path, Macros], Any] = {}
        self._shared_bytes: dict[tuple[Path, Macros, str], int] = {}  # largest request for each kernel
        properties = self._device.properties
        self.multiprocessors: int = properties.multiprocessor_count
        self.block_shared_bytes: int = properties.max_shared_memory_per_block_optin  # opt-in maximum
        self.l2_bytes: int = properties.l2_cache_size
        self._beyond_l2: Any = None

    def _enqueue_on(self, stream: Any) -> None:
        stream.use()
        self.stream = stream
        self.stream_handle: int = stream.ptr
        self.launch_stream = Stream.from_handle(self.stream_handle)

    @contextmanager
    def beside(self, branch: int, after: Any = None) -> Iterator[None]:
        """Enqueue on a parallel stream, which first waits for the event `after`, or for all work enqueued so far.

        Call `join` before the main stream uses the results, unless it waits in another way. Inside a capture this
        makes a branch of the graph. Each `branch` number is one ordered stream.
        """
        main = self.stream
        if branch not in self._branches:
            self._branches[branch] = cupy.cuda.Stream(non_blocking=True)
        self._branches[branch].wait_event(_recorded(main) if after is None else after)
        self._enqueue_on(self._branches[branch])
        try:
            yield
        finally:
            self._enqueue_on(main)

    def join(self) -> None:
        """Make the main stream wait for every branch."""
        for stream in self._branches.values():
            self.stream.wait_event(_recorded(stream))

    @contextmanager
    def dependent(self) -> Iterator[None]:
        """Inside, capture waiting kernels as programmatic dependents of their predecessors; needs sm_90."""
        self.chain = dependent_launch.Chain(lambda: dependent_launch.captured_at(self.stream_handle))
        try:
            yield
        finally:
            self.chain = None

    def kernel(
        self,
        source: Path,
        name: str,
        cluster: int | None = None,
        shared_bytes: int = 0,
        cooperative: bool = False,
        macros: Macros = (),
    ) -> Kernel:
        """The named kernel of a `.cu` file, compiled with macros for this GPU or loaded from the disk cache.

        `cluster` is the number of blocks of a cluster, `shared_bytes` each block's dynamic shared memory; MisfitError
        if the GPU refuses either. With `cooperative`, all blocks of a launch run at once.
        """
        program = self._programs.get((source, macros))
        if program is None:
            cubin = cached_cubin(source, self._architecture, macros)
            program = self._programs[source, macros] = ObjectCode.from_cubin(cubin.code, name=source.name)
        code = program.get_kernel(name)
        attributes = driver.CUfunction_attribute
        if cluster is not None and cluster > PORTABLE_CLUSTER:
            allowed = attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            self._ask_for(code, allowed, 1, f"clusters of {cluster} blocks")
        if shared_bytes:
            most = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            asked = (source, macros, name)  # never lowered: captured graphs may need the earlier size
            self._shared_bytes[asked] = max(shared_bytes, self._shared_bytes.get(asked, 0))
            self._ask_for(code, most, self._shared_bytes[asked], f"{shared_bytes:,} bytes of shared memory a block")
        shape = {"cluster": cluster, "shmem_size": shared_bytes, "is_cooperative": cooperative}
        dependent = None
        if dependent_launch.waits(source) and not set(dependent_launch.MACROS) & set(macros):
            load = partial(
                self.kernel, source, name, cluster, shared_bytes, cooperative, macros + dependent_launch.MACROS
            )
            dependent = cache(lambda early: load().early() if early else load())
        return Kernel(code, self, dependent, **shape)

    def loaded(self, cubin: bytes, name: str, shared_bytes: int = 0) -> Kernel:
        """A kernel from another compiler's machine code; MisfitError if a block cannot have its shared memory."""
        code = ObjectCode.from_cubin(cubin, name=name).get_kernel(name)
        if shared_bytes:
            most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._ask_for(code, most, shared_bytes, f"{shared_bytes:,} bytes of shared memory a block")
        return Kernel(code, self, shmem_size=shared_bytes)

    def triton(self, function: Any, constants: Mapping[str, Any], warps: int, stages: int) -> TritonKernel:
        """A `triton.jit` function with these constants, warps of a program and stages of a loop's pipeline."""
        return TritonKernel(self, function, constants, warps, stages)

    def _ask_for(self, code: Any, attribute: Any, value: int, what: str) -> None:
        (status,) = driver.cuKernelSetAttribute(attribute, value, code.handle, driver.CUdevice(self._device.device_id))
        if status != driver.CUresult.CUDA_SUCCESS:
            raise MisfitError(f"This GPU refuses {what} ({status.name}).")

    def trials(self, subject: str, *, are_cold: bool = False) -> Trials:
        """Trials of candidates on this GPU, with choices stored under this subject; if cold, each finds L2 flushed."""
        return Trials(self, f"{subject} on {self.name}", self._flush_l2 if are_cold else None)

    def _flush_l2(self) -> None:
        """Enqueue a fill of memory twice as large as L2."""
        if self._beyond_l2 is None:
            self._beyond_l2 = self.empty((2 * self.l2_bytes,), np.uint8)
        self.zero(self._beyond_l2)

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        """Record what `enqueue` enqueues into a CUDA graph; returns a function that replays it.

        The graph stores addresses only: the caller keeps their memory alive.
        """
        self.stream.synchronize()
        self.stream.begin_capture()
        try:
            enqueue()
        except BaseException:
            with suppress(Exception):  # an open capture would hide the reason by failing the stream's next user
                self.stream.end_capture()
            raise
        graph = self.stream.end_capture()
        graph.upload(self.stream)
        return lambda: graph.launch(self.stream)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """Uninitialised device memory."""
        return cupy.empty(shape, dtype)

    def upload(self, host: NDArray[Any]) -> Any:
        """Copy a host array to the device."""
        return cupy.asarray(host)

    def overwrite(self, target: Any, host: NDArray[Any]) -> None:
        """Copy a host array over a device array of the same shape and dtype."""
        target.set(np.ascontiguousarray(host, target.dtype), stream=self.stream)

    def download(self, array: Any) -> NDArray[Any]:
        """Copy to the host after all enqueued work."""
        memory = touched(array.shape, array.dtype) if array.nbytes >= TOUCHED_BYTES else None
        host: NDArray[Any] = array.get(stream=self.stream, out=memory)
        return host

    def zero(self, array: Any) -> None:
        """Enqueue a fill with zero bytes."""
        array.data.memset_async(0, array.nbytes, self.stream)

    def step_allocator(self, allocator: str) -> StepAllocator:
        """Tensors with temporary memory from one of these allocators.

        `cudaMalloc`; `cudaMallocAsync`, in stream order from CUDA's default pool, which returns unused memory at every
        synchronisation; `pool`, a new CuPy pool.
        """
        return StepAllocator(ALLOCATORS[allocator]())

    def page_locked(self, host: NDArray[Any]) -> NDArray[Any]:
        """Copy a host array to page-locked memory, which the device reads without the host."""
        memory = cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(host.nbytes), 0)
        copy: NDArray[Any] = np.frombuffer(memory, host.dtype, host.size).reshape(host.shape)
        copy[...] = host
        return copy

    def enqueue_copy(self, target: Any, address: int, stream: Any = None) -> None:
        """Enqueue a copy from host memory to a whole array, by default on the GPU's stream.

        From memory that is not page-locked, the call returns after all bytes are read.
        """
        target.data.copy_from_host_async(address, target.nbytes, stream or self.stream)

    def side_stream(self) -> Any:
        """A stream independent of the GPU's own; it has `wait_event`."""
        return cupy.cuda.Stream(non_blocking=True)

    def event(self) -> Any:
        """An event for `record` and `wait_event`; a wait for an unrecorded event returns at once."""
        return cupy.cuda.Event(disable_timing=True)


def _recorded(stream: Any) -> Any:
    """An event after all work enqueued on the stream so far."""
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)
    return event
