"""The GPU's limits, measured once a day: kept in the cache for one device, driver, set of libraries and way to measure.

They drift by less from hour to hour than their samples spread, and measuring them takes as long as ten stages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from common.cache import cache_folder
from common.cuda import driver
from common.files import atomic_write
from common.source_hash import source_hash
from ladder.records.limits import SHARED, LimitsRecord

ROOT = Path(__file__).parents[2]
MEASURED_BY = (ROOT / "common/cuda/primitives.py", ROOT / "ladder/machine/limits.py")


def kept_limits(environment: Mapping[str, Any]) -> LimitsRecord | None:
    """Today's limits of the first visible GPU on a machine so described; None if they are still to be measured."""
    with suppress(OSError, ValueError, msgspec.MsgspecError):
        return msgspec.json.decode(_file(environment).read_bytes(), type=LimitsRecord)
    return None


def keep_limits(environment: Mapping[str, Any], limits: LimitsRecord) -> None:
    """Keep limits that were measured just now, unless another process disturbed them; a refusing disk is no error."""
    if SHARED not in limits.skipped.values():
        file = _file(environment)
        kept = msgspec.structs.replace(limits, measured=datetime.now(UTC).isoformat(timespec="seconds"))
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            for old in file.parent.glob("*.json"):
                if old.name.partition(".")[0] < file.name.partition(".")[0]:  # of an earlier day
                    old.unlink()
            atomic_write(file, msgspec.json.encode(kept))


def _file(environment: Mapping[str, Any]) -> Path:
    """Where today's limits of this machine's first GPU are kept."""
    described = {part: environment.get(part) for part in ("gpu", "cpu", "libraries")}
    device = [found.pci_bus_id for found in driver.devices()[:1]]
    subject = msgspec.json.encode([described, device, source_hash(MEASURED_BY)], order="sorted")
    today = datetime.now(UTC).date().isoformat()
    return cache_folder("limits") / f"{today}.{hashlib.sha256(subject).hexdigest()[:16]}.json"
