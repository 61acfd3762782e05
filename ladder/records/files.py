"""Atomic writes and visible text, for the reports, which import records alone."""

from __future__ import annotations

from common.files import atomic_write as atomic_write
from common.streams import visible as visible
