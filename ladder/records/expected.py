"""What a step of a rung was expected to take before it was measured, as `results.json` keeps it."""

from __future__ import annotations

import msgspec

from ladder.records.profile import Positive


class Expected(msgspec.Struct, frozen=True):
    """A model's estimate, never a measurement; `ladder.run.expected` makes it."""

    us: Positive
    error: Positive  # share of `us`: the root mean square over networks that the model had not seen
    gpu: str  # that the model is of
    times_from: Positive | None = None  # times as fast as its parent; null if that has no estimate
    loses_to: str = ""  # an earlier rung that should be faster by more than 5 % and the error of both estimates
    loses_to_us: Positive | None = None

    @property
    def remark(self) -> str:
        """`expected to lose here: 76 us, exact-u8 57`; empty unless it is."""
        if self.loses_to_us is None:
            return ""
        return f"expected to lose here: {_rounded(self.us)} us, {self.loses_to} {_rounded(self.loses_to_us)}"


def _rounded(us: float) -> str:
    return f"{us:,.{0 if us >= 10 else 1}f}"
