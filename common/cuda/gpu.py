"""One GPU as the stages see it: a stream, memory, and kernels ready to launch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, ObjectCode, Stream, launch
from numpy.typing import DTypeLike, NDArray

from common.cuda.compile import cached_cubin

Grid = int | tuple[int, ...]

PORTABLE_CLUSTER = 8  # blocks; a kernel has to ask for more
UNASKED_SHARED_BYTES = 48 << 10  # a block's; a kernel has to ask for more


class Kernel:
    """A kernel on a stream. Scalars are passed as NumPy scalars of the kernel's own types, tensors as CuPy arrays.

    Launched through `cuda.core`, which costs the host 3.6 us as CuPy's own launcher does, and can also launch clusters
    and cooperative grids.
    """

    def __init__(
        self, code: Any, stream: Any, cluster: int | None = None, *, cooperative: bool = False, shared_bytes: int = 0
    ) -> None:
        self._code = code
        self._stream = stream
        self._options = {"cluster": cluster, "is_cooperative": cooperative, "shmem_size": shared_bytes}
        self._configs: dict[tuple[Grid, Grid], Any] = {}  # making one costs as much as a launch

    def __call__(self, grid: Grid, block: Grid, *args: Any) -> None:
        """Enqueue a launch of so many blocks (or clusters) of so many threads, sizes in CUDA's order (x, y, z)."""
        config = self._configs.get((grid, block))
        if config is None:
            config = self._configs[grid, block] = LaunchConfig(grid=grid, block=block, **self._options)
        launch(self._stream, config, self._code, *[a.data.ptr if type(a) is cupy.ndarray else a for a in args])


class Gpu:
    """The first visible GPU, with a stream of its own on which everything is enqueued, in order."""

    def __init__(self) -> None:
        self._device = Device(0)
        self._device.set_current()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        self.stream_handle: int = self.stream.ptr
        self._launch_stream = Stream.from_handle(self.stream_handle)
        self._programs: dict[Path, Any] = {}
        properties = self._device.properties
        self.multiprocessors: int = properties.multiprocessor_count
        self.block_shared_bytes: int = properties.max_shared_memory_per_block_optin  # at most, for a kernel that asks

    def kernel(
        self,
        source: Path,
        name: str,
        cluster: int | None = None,
        *,
        cooperative: bool = False,
        shared_bytes: int = 0,
    ) -> Kernel:
        """The named kernel of a `.cu` file, compiled for this GPU (or found in the cache on disk).

        With `cluster`, it is launched in clusters of so many blocks; raises ValueError where the GPU has none so large.
        With `cooperative`, all blocks of a launch run at once. A block gets `shared_bytes` besides what it declares.
        """
        program = self._programs.get(source)
        if program is None:
            cubin = cached_cubin(source, f"sm_{self._device.arch}")
            program = self._programs[source] = ObjectCode.from_cubin(cubin.code, name=source.name)
        code = program.get_kernel(name)
        if cluster is not None and cluster > PORTABLE_CLUSTER:
            self._set(code, "NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1, f"clusters of {cluster} blocks")
        if shared_bytes > UNASKED_SHARED_BYTES:
            self._set(code, "MAX_DYNAMIC_SHARED_SIZE_BYTES", shared_bytes, f"{shared_bytes:,} bytes of shared memory")
        return Kernel(code, self._launch_stream, cluster, cooperative=cooperative, shared_bytes=shared_bytes)

    def _set(self, code: Any, attribute: str, value: int, wanted: str) -> None:
        name = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{attribute}")
        (status,) = driver.cuKernelSetAttribute(name, value, code.handle, driver.CUdevice(self._device.device_id))
        if status != driver.CUresult.CUDA_SUCCESS:
            raise ValueError(f"{wanted} are refused by this GPU ({status.name})")

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
