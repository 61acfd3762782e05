#!/usr/bin/env bash
# Records the processes that docs/statistics.md compares with themselves: 96 of numpy on an otherwise idle CPU, and 24
# each of naive, cuda-graph and fused-epilogue on the GPU; then writes the tables of results/aa/README.md. Run it from a
# committed tree, so that the recordings name their commit; check what docs/statistics.md says of them.
# `tools/record_aa.sh cpu` records 24 processes each of five CPU rungs instead, on an idle machine without a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.venv/bin/python
[ -x "$python" ] || python=python3

measured=runs/aa
how=(--warmups 1 --profile none --budget 1000)
if [ "${1:-}" = cpu ]; then
    rm -rf "$measured"
    "$python" run_ladder.py --stages cpu-one-call..cpu-resident --rounds 24 --epochs 10 --repeats 2 \
        --out "$measured/cpu-rungs" "${how[@]}"
    gzip -nc "$measured/cpu-rungs/results.json" > results/aa/cpu-rungs.json.gz
    exec "$python" -m tools.aa_study
fi

name=$("$python" -c 'from common.cuda.driver import devices; print(*[gpu.name for gpu in devices()[:1]])')
[ "$name" ] || { echo "record_aa: no NVIDIA GPU here" >&2; exit 2; }
gpu=$(tr '[:upper:]' '[:lower:]' <<<"$name" | sed -E 's/nvidia |geforce //g; s/[^a-z0-9]+/-/g; s/^-|-$//g')

rm -rf "$measured"
"$python" run_ladder.py --stages numpy --rounds 96 --epochs 3 --repeats 12 --out "$measured/cpu" "${how[@]}"
"$python" run_ladder.py --stages naive,cuda-graph,fused-epilogue --rounds 24 --epochs 10 --repeats 2 --out "$measured/gpu" "${how[@]}"

# Kept last, so that both recordings say that the tree was clean.
gzip -nc "$measured/cpu/results.json" > results/aa/cpu.json.gz
gzip -nc "$measured/gpu/results.json" > "results/aa/$gpu.json.gz"
"$python" -m tools.aa_study
