#!/usr/bin/env bash
# Runs the tests that need the GPU: `tools/test_gpu.sh PYTHON`. Most of their time is the host's (compiling kernels,
# NumPy), so six run at a time; tests that look at times run last and alone.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
"$python" -m pytest -q -p no:benchmark -m "gpu and not alone" -n 6 --dist worksteal
"$python" -m pytest -q -m "gpu and alone"
