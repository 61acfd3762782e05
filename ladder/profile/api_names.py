"""Shortens the names of kernels and API calls for people to read."""

from __future__ import annotations

import ctypes
import re
from ctypes.util import find_library
from functools import cache

ALLOCATES = re.compile(r"[Aa]lloc|Free")
ACTS = re.compile(rf"Launch|Memcpy|Memset|Synchronize|{ALLOCATES.pattern}")
CUTE = re.compile(r"kernel_cutlass_(\w+?)_tensorptr")  # then shapes and constants
WRAPPER = re.compile(r"\bcutlass\w*::(?:device_)?[Kk]ernel\w*<(?:\w+::)*(\w+)")


@cache
def short_name(name: str) -> str:
    """A kernel's name, mangled or not, without return type, namespaces, template arguments and parameters.

    CUTLASS names all its kernels `Kernel2`; their template argument is returned instead. CuTe DSL adds the arguments to
    a name.
    """
    if written := CUTE.match(name):
        return written[1]
    full = demangled(name).replace("(anonymous namespace)::", "")
    if wrapped := WRAPPER.search(full):
        return wrapped[1]
    plain, depth = [], 0
    for letter in full.replace("<unnamed>::", ""):
        if letter == "(" and depth == 0:
            break
        depth += (letter == "<") - (letter == ">")
        if depth == 0 and letter != ">":
            plain.append(letter)
    words = "".join(plain).split()
    return words[-1].rpartition("::")[2] if words else name


def call_name(name: str) -> str:
    """The plain name of a call, such as `cudaLaunchKernel` for `cudaLaunchKernel_ptsz_v7000`."""
    return re.sub(r"(_ptsz|_ptds|_v\d+)+$", "", name)


def is_action(call: str) -> bool:
    """Whether a call of this name submits work, waits or allocates; the many calls that only query are not recorded."""
    return ACTS.search(call) is not None


def allocates(call: str) -> bool:
    """Whether a call of this name allocates or frees memory."""
    return ALLOCATES.search(call) is not None


def demangled(name: str) -> str:
    """The C++ name of a mangled `_Z...`, by the C++ library's demangler; any other name unchanged."""
    if not name.startswith("_Z") or (library := _library()) is None:
        return name
    status = ctypes.c_int()
    text = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or not text:
        return name
    return ctypes.string_at(text).decode(errors="replace")  # not freed: a few names in a short-lived process


@cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(find_library("stdc++") or "libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
    except (OSError, AttributeError):
        return None
    return library
