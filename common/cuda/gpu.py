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
from common.cuda.trials import Trials

Grid = int | tuple[int, ...]

PORTABLE_CLUSTER = 8  # blocks; a kernel has to ask for more


class Kernel:
    """A kernel on a stream. Scalars are passed as NumPy scalars of the kernel's own types, tensors as CuPy arrays.

    Launched through `cuda.core`, which costs the host 3.6 us as CuPy's own launcher does, and can also launch clusters
    and cooperative grids.
    """

    def __init__(self, code: Any, stream: Any, cluster: int | None = None) -> None:
        self._code = code
        self._stream = stream
        self._cluster = cluster
        self._configs: dict[tuple[Grid, Grid], Any] = {}  # making one costs as much as a launch

    def __call__(self, grid: Grid, block: Grid, *args: Any) -> None:
        """Enqueue a launch of so many blocks (or clusters) of so many threads, sizes in CUDA's order (x, y, z)."""
        config = self._configs.get((grid, block))
        if config is None:
            config = self._configs[grid, block] = LaunchConfig(grid=grid, block=block, cluster=self._cluster)
        launch(self._stream, config, self._code, *[a.data.ptr if type(a) is cupy.ndarray else a for a in args])


class Gpu:
    """The first visible GPU, with a stream of its own on which everything is enqueued, in order."""

    def __init__(self) -> None:
        self._device = Device(0)
        self._device.set_current()
        self.name: str = self._device.name
        self.has_clusters: bool = self._device.compute_capability.major >= 9
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        self.stream_handle: int = self.stream.ptr
        self._launch_stream = Stream.from_handle(self.stream_handle)
        self._programs: dict[Path, Any] = {}

    def kernel(self, source: Path, name: str, cluster: int | None = None) -> Kernel:
        """The named kernel of a `.cu` file, compiled for this GPU (or found in the cache on disk).

        With `cluster`, it is launched in clusters of so many blocks; raises ValueError where the GPU has none so large.
        """
        program = self._programs.get(source)
        if program is None:
            cubin = cached_cubin(source, f"sm_{self._device.arch}")
            program = self._programs[source] = ObjectCode.from_cubin(cubin.code, name=source.name)
        code = program.get_kernel(name)
        if cluster is not None and cluster > PORTABLE_CLUSTER:
            self._allow_clusters(code, cluster)
        return Kernel(code, self._launch_stream, cluster)

    def _allow_clusters(self, code: Any, blocks: int) -> None:
        allowed = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        (status,) = driver.cuKernelSetAttribute(allowed, 1, code.handle, driver.CUdevice(self._device.device_id))
        if status != driver.CUresult.CUDA_SUCCESS:
            raise ValueError(f"clusters of {blocks} blocks are refused by this GPU ({status.name})")

    def trials(self, subject: str) -> Trials:
        """What is the fastest of several ways on this GPU, remembered as about this subject."""
        return Trials(self, f"{subject} on {self.name}")

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
