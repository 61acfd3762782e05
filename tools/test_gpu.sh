#!/usr/bin/env bash
# The tests that need the GPU: `tools/test_gpu.sh PYTHON`. Those that look at times come last and alone, all others
# several at a time, since most of what they take is the host's: compiling kernels, and NumPy's part.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
"$python" -m pytest -q -p no:benchmark -m "gpu and not alone" -n 6 --dist worksteal
"$python" -m pytest -q -m "gpu and alone"
