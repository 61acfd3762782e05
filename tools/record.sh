#!/usr/bin/env bash
# Measures on this machine's GPU what results/reference/<gpu>/<problem>/ keeps: the GPU tests, then the first three
# problems, or those that are named. Run it from a committed tree, look at the figures, then `python run_ladder.py readme`,
# and commit. It ends with 1 when a stage failed or crashed; the record says so, too. The last line of each problem, and
# of the tests, says how many seconds it took.
set -euo pipefail
cd "$(dirname "$0")/.."

# nsys takes a process of its own for every stage, and sees in all problems the same kinds of things: once is enough.
# The wide networks: where the host has long stopped to matter, and what a batch or an epoch has to be cut to for them.
beyond="--stages torch-graph,torch-graph-amp,jax-scan,cuda-graph..persistent-cluster"
declare -A options=(
    [logistic]="--stages all --profile nsys,cupti"
    [hidden-256]="--stages all --hidden 256"
    [hidden-128-128-128]="--stages all --hidden 128,128,128 --batch-size 32"
    [hidden-1024]="$beyond --hidden 1024"
    [hidden-784-784-784-784]="$beyond --hidden 784,784,784,784 --batch-size 64 --epochs 10"
    [hidden-4096-4096-4096]="$beyond --hidden 4096,4096,4096 --batch-size 32 --learning-rate 0.01 --epochs 10 --max-steps 50"
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

began=$SECONDS
took() { echo "record: $1 took $((SECONDS - began)) s"; began=$SECONDS; }
"$python" -m pytest -q -m gpu
took "the tests"

# Under the ignored runs/ until all are measured: each record then says that its tree was clean, and the old one stays
# until the new one is whole.
measured=runs/record/$gpu
rm -rf "$measured"
status=0
for problem in "$@"; do
    read -ra extra <<<"${options[$problem]}"
    "$python" run_ladder.py --out "$measured/$problem" "${extra[@]}" || {
        status=$?
        [ "$status" -eq 1 ] || exit "$status"
    }
    took "$problem"
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
