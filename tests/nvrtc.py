"""Which tests need NVRTC, and why they are skipped where it is missing."""

from __future__ import annotations

import pytest

from common.cuda.compile import nvrtc_version


def _missing() -> str:
    try:
        nvrtc_version()
    except (ImportError, RuntimeError) as error:
        return f"NVRTC is missing: {str(error).splitlines()[0]}"
    return ""


requires_nvrtc = pytest.mark.skipif(bool(_missing()), reason=_missing())
