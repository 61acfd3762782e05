"""CPU sparse metrics: loss and accuracy are computed in every tenth epoch only.

Why: training does not need its own loss. A thousand exponentials and a copy for the host in every step are work all
the same.

Change: metrics, by the same part as `sparse-metrics`.

Expect: 1,280 exponentials in float64 of some 5 ns each and a copy: 10 us per step less.

Predict: on CPU: 784-10, batch 128: 10 us less than cpu-blas.

Found: the difference is as predicted, but no larger than the noise of the machine. Beside products of hidden layers it
vanishes. It counts for later rungs, whose products are faster.
"""

from __future__ import annotations

from stages.classic.sparse_metrics import MetricsSparsely
from stages.cpu import blas

STAGE = blas.STAGE.climb(
    "cpu-sparse-metrics", "Sparse metrics", words="loss computed in every tenth epoch only", metrics=MetricsSparsely
)
