#!/usr/bin/env bash
# Measures on this machine's GPU what results/reference/<gpu>/<problem>/ keeps: the GPU tests, then each recorded
# problem, or those that are named. Run it from a committed tree, look at the figures, then
# `python run_ladder.py readme`, and commit. It ends with 1 when a stage failed or crashed; the record says so, too.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A options=(
    [logistic]=""
    [hidden-256]="--hidden 256"
    [hidden-128-128-128]="--hidden 128,128,128 --batch-size 32"
)
[ $# -gt 0 ] || set -- logistic hidden-256 hidden-128-128-128
for problem in "$@"; do
    [ "${options[$problem]+known}" ] || { echo "record: there is no problem $problem" >&2; exit 2; }
done

python=.venv/bin/python
[ -x "$python" ] || python=python3

name=$("$python" -c 'from common.cuda.driver import devices; print(*[gpu.name for gpu in devices()[:1]])')
[ "$name" ] || { echo "record: no NVIDIA GPU here" >&2; exit 2; }
gpu=$(tr '[:upper:]' '[:lower:]' <<<"$name" | sed -E 's/nvidia |geforce //g; s/[^a-z0-9]+/-/g; s/^-|-$//g')

"$python" -m pytest -q -m gpu

# Under the ignored runs/ until all are measured: each record then says that its tree was clean, and the old one stays
# until the new one is whole.
measured=runs/record/$gpu
rm -rf "$measured"
status=0
for problem in "$@"; do
    read -ra extra <<<"${options[$problem]}"
    "$python" run_ladder.py --stages all --profile nsys,cupti --out "$measured/$problem" "${extra[@]}" || {
        status=$?
        [ "$status" -eq 1 ] || exit "$status"
    }
    rm -r "$measured/$problem/logs"
    rm -f "$measured/$problem"/profiles/*.nsys-rep  # half a megabyte each; the traces beside them open in a browser
done

kept=results/reference/$gpu
mkdir -p "$kept"
for problem in "$@"; do
    rm -rf "${kept:?}/$problem"
    mv "$measured/$problem" "$kept/$problem"
done
exit "$status"
