"""CuTe DSL functions, compiled ahead, kept on disk, and launched by handle: without the DSL's launcher."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from common.cache import cache_folder
from common.files import atomic_write
from common.source_hash import source_hash

PACKAGE = "nvidia-cutlass-dsl"


class CuteCode(msgspec.Struct, frozen=True):
    """The machine code of a function's one kernel, and the kernel's name in it."""

    cubin: bytes
    name: str


def compile_cute(
    load: Callable[[], tuple[Any, tuple[Any, ...]]], source: Path, constants: Mapping[str, Any], capability: int
) -> CuteCode:
    """The code of a `cute.jit` function for a compute capability such as 90; from the disk if it is there.

    `load` gives the function and its tensors, and imports the DSL, which takes seconds. Tensors of static shapes are
    pointers to the kernel. `source` is the function's file; `constants` identify the tensors' shapes as well.
    """
    from importlib.metadata import version  # late: it takes longer to import than this module

    key = json.dumps([version(PACKAGE), source_hash([source]), sorted(constants.items()), capability])
    entry = cache_folder("cute") / hashlib.sha256(key.encode()).hexdigest()
    try:
        return msgspec.msgpack.decode(entry.read_bytes(), type=CuteCode)
    except (OSError, msgspec.DecodeError):
        pass
    function, arguments = load()
    from cutlass import cute

    with tempfile.TemporaryDirectory() as folder:
        architecture = f"sm_{capability}{'a' if capability >= 90 else ''}"
        options = f"--keep-cubin --generate-line-info --dump-dir {folder} --gpu-arch {architecture}"
        compiled = cute.compile(function, *arguments, options=options)
        (name,) = compiled.kernel_info
        code = CuteCode(bytes(compiled.artifacts.CUBIN), name)
    entry.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(entry, msgspec.msgpack.encode(code))
    return code
