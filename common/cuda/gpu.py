"""One GPU as the stages see it: a stream, memory, and kernels ready to launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, ObjectCode, Stream, launch
from numpy.typing import DTypeLike, NDArray

from common.cuda import dependent_launch
from common.cuda.autotune import Trials, sweep
from common.cuda.compile import Macros, cached_cubin, source_key
from common.cuda.step_memory import StepAllocator, Tensor

Grid = int | tuple[int, ...]

ARRAYS = {cupy.ndarray, Tensor}
ALLOCATORS: dict[str, Callable[[], Callable[[int], Any]]] = {
    "cudaMalloc": lambda: cupy.cuda.Memory,
    "cudaMallocAsync": lambda: cupy.cuda.malloc_async,
    "pool": lambda: cupy.cuda.MemoryPool().malloc,
}
PORTABLE_CLUSTER = 8  # blocks; a kernel has to ask for more


class Kernel:
    """A kernel on the stream that its GPU enqueues on.

    Scalars are passed as NumPy scalars of the kernel's own types, tensors as CuPy arrays. Launched through `cuda.core`,
    which costs the host 3.6 us as CuPy's own launcher does, and can also launch clusters and cooperative grids.
    """

    def __init__(self, code: Any, gpu: Gpu, that_waits: Callable[[bool], Kernel] | None = None, **shape: Any) -> None:
        self._code = code
        self._gpu = gpu
        self._that_waits = that_waits  # the same kernel for a chain, to be launched early or not
        self._shape = shape
        self._configs: dict[tuple[Grid, Grid], Any] = {}  # making one costs as much as a launch

    def __call__(self, grid: Grid, block: Grid, *args: Any) -> None:
        """Enqueue a launch of so many blocks (or clusters) of so many threads, sizes in CUDA's order (x, y, z)."""
        chain = self._gpu.chain
        if chain is not None and self._that_waits is not None:
            self._that_waits(chain.goes_on())(grid, block, *args)
            chain.extend()
            return
        config = self._configs.get((grid, block))
        if config is None:
            config = self._configs[grid, block] = LaunchConfig(grid=grid, block=block, **self._shape)
        passed = [a.data.ptr if type(a) in ARRAYS else a for a in args]
        launch(self._gpu.launch_stream, config, self._code, *passed)

    def early(self) -> Kernel:
        """The same, launched before the kernel in front of it has ended: it has to wait by itself."""
        return Kernel(self._code, self._gpu, **self._shape, programmatic_stream_serialization=True)

    def clusters_at_once(self, block: Grid) -> int:
        """How many of its clusters, of blocks of so many threads, the GPU has room for at the same time."""
        config = LaunchConfig(grid=1, block=block, **self._shape)
        return int(self._code.occupancy.max_active_clusters(config, stream=self._gpu.launch_stream))


class Gpu:
    """The first visible GPU, with a stream of its own on which everything is enqueued, in order.

    What need not wait for it can go beside it: see `beside`.
    """

    def __init__(self) -> None:
        self._device = Device(0)
        self._device.set_current()
        self.name: str = self._device.name
        self.has_clusters: bool = self._device.compute_capability.major >= 9
        # "a" for what only this one has, wgmma among it; a cubin runs nowhere else anyway.
        self._architecture = f"sm_{self._device.arch}{'a' if self._device.arch == '90' else ''}"
        self.chain: dependent_launch.Chain | None = None
        self._branches: dict[int, Any] = {}
        self._enqueue_on(cupy.cuda.Stream(non_blocking=True))
        self._programs: dict[tuple[Path, Macros], Any] = {}
        self._shared_bytes: dict[tuple[Path, Macros, str], int] = {}  # the most that a kernel was asked for with
        properties = self._device.properties
        self.multiprocessors: int = properties.multiprocessor_count
        self.block_shared_bytes: int = properties.max_shared_memory_per_block_optin  # at most, for a kernel that asks
        self.l2_bytes: int = properties.l2_cache_size

    def _enqueue_on(self, stream: Any) -> None:
        stream.use()
        self.stream = stream
        self.stream_handle: int = stream.ptr
        self.launch_stream = Stream.from_handle(self.stream_handle)

    @contextmanager
    def beside(self, branch: int, after: Any = None) -> Iterator[None]:
        """Enqueue on a stream beside the GPU's own, after what an event marks, or else all that the latter has by now.

        Unless the GPU's own stream waits for it in another way, `join` has to. In a capture that makes a branch of the
        graph. Branches of one number are one stream, in order.
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
        """Let what is enqueued from now on wait for every branch."""
        for stream in self._branches.values():
            self.stream.wait_event(_recorded(stream))

    @contextmanager
    def dependent(self) -> Iterator[None]:
        """Capture kernels that can wait for the one before them as its programmatic dependents; needs sm_90."""
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
        """The named kernel of a `.cu` file, compiled with macros for this GPU (or found in the cache on disk).

        With `cluster`, it is launched in clusters of so many blocks, and with `shared_bytes` each block has so much
        shared memory besides what the kernel declares; raises ValueError where the GPU has none so large. With
        `cooperative`, all blocks of a launch run at once.
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
            asked = (source, macros, name)  # never for less than before, which launches in graphs may still need
            self._shared_bytes[asked] = max(shared_bytes, self._shared_bytes.get(asked, 0))
            self._ask_for(code, most, self._shared_bytes[asked], f"{shared_bytes:,} bytes of shared memory a block")
        shape = {"cluster": cluster, "shmem_size": shared_bytes, "is_cooperative": cooperative}
        that_waits = None
        if dependent_launch.waits(source) and not set(dependent_launch.MACROS) & set(macros):
            load = partial(
                self.kernel, source, name, cluster, shared_bytes, cooperative, macros + dependent_launch.MACROS
            )
            that_waits = cache(lambda early: load().early() if early else load())
        return Kernel(code, self, that_waits, **shape)

    def _ask_for(self, code: Any, attribute: Any, value: int, what: str) -> None:
        (status,) = driver.cuKernelSetAttribute(attribute, value, code.handle, driver.CUdevice(self._device.device_id))
        if status != driver.CUresult.CUDA_SUCCESS:
            raise ValueError(f"{what} are refused by this GPU ({status.name})")

    def trials(self, subject: str) -> Trials:
        """What is the fastest of several ways on this GPU, remembered as about this subject."""
        return Trials(self, f"{subject} on {self.name}")

    def samples(self, candidates: Sequence[Callable[[], None]]) -> list[list[float]]:
        """The seconds of a launch of each, in some turns; each has been called before and may be repeated."""
        return sweep(self, candidates)

    def source_key(self, source: Path) -> str:
        """Another one whenever a `.cu` file, a header of its own, or the compiler makes other machine code."""
        return source_key(source, f"sm_{self._device.arch}")[:16]

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        """Record what `enqueue` enqueues into a CUDA graph instead of running it; returns what replays it.

        The graph knows addresses, and keeps nothing alive that lies there: whoever replays it has to.
        """
        self.stream.synchronize()
        self.stream.begin_capture()
        try:
            enqueue()
        except BaseException:
            with suppress(Exception):  # a stream left capturing would fail whoever uses it next, and hide the reason
                self.stream.end_capture()
            raise
        graph = self.stream.end_capture()
        graph.upload(self.stream)
        return lambda: graph.launch(self.stream)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """Uninitialised device memory."""
        return cupy.empty(shape, dtype)

    def upload(self, host: NDArray[Any]) -> Any:
        """A copy of a host array on the device."""
        return cupy.asarray(host)

    def overwrite(self, target: Any, host: NDArray[Any]) -> None:
        """Copy a host array over a device array of the same shape and dtype."""
        target.set(np.ascontiguousarray(host, target.dtype), stream=self.stream)

    def download(self, array: Any) -> NDArray[Any]:
        """A copy on the host, once everything enqueued before it is done."""
        host: NDArray[Any] = array.get(stream=self.stream)
        return host

    def zero(self, array: Any) -> None:
        """Enqueue the filling with zero bytes."""
        array.data.memset_async(0, array.nbytes, self.stream)

    def step_allocator(self, allocator: str) -> StepAllocator:
        """Tensors that have memory only now and then, of one of these allocators.

        `cudaMalloc`; `cudaMallocAsync`, which takes and gives back in the order of the stream, from CUDA's own pool as
        it is by default: one that keeps nothing unused at a synchronisation; `pool`, a new one of CuPy's.
        """
        return StepAllocator(ALLOCATORS[allocator]())

    def page_locked(self, host: NDArray[Any]) -> NDArray[Any]:
        """A copy of a host array in memory that the device reads by itself, while the host goes on."""
        memory = cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(host.nbytes), 0)
        copy: NDArray[Any] = np.frombuffer(memory, host.dtype, host.size).reshape(host.shape)
        copy[...] = host
        return copy

    def enqueue_copy(self, target: Any, address: int, stream: Any = None) -> None:
        """Enqueue the filling of a whole array from the host's memory; by itself, in the order of the GPU's stream.

        From memory that is not page-locked, it returns only once all is read.
        """
        target.data.copy_from_host_async(address, target.nbytes, stream or self.stream)

    def side_stream(self) -> Any:
        """A stream that does not wait for the GPU's own: it has `wait_event`."""
        return cupy.cuda.Stream(non_blocking=True)

    def event(self) -> Any:
        """A mark that `record` puts on a stream, for another one to wait for; nobody waits for one that is on none."""
        return cupy.cuda.Event(disable_timing=True)


def _recorded(stream: Any) -> Any:
    """An event that comes to pass when the stream has done all that it has by now."""
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)
    return event
