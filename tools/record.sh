#!/usr/bin/env bash
# Measures on this machine's GPU what results/reference/<gpu>/<problem>/ keeps: the GPU tests, then each recorded
# problem, or those that are named. Run it from a committed tree, look at the figures, then
# `python run_ladder.py readme`, and commit. It ends with 1 when a stage failed or crashed; the record says so, too.
# The last line of each problem, and of the tests, says how many seconds it took. Expected on an H200, not measured yet:
# 1 minute for the tests, 4 to 5 for logistic, of which 2 are nsys's, 3 to 4 for hidden-256 and 5 to 7 for the deep one, a
# third of them compilers and the oracle. What could still be saved would be rounds, and with them what noise is known.
set -euo pipefail
cd "$(dirname "$0")/.."

# nsys takes a process of its own for every stage, and sees in all problems the same kinds of things: once is enough.
declare -A options=(
    [logistic]="--profile nsys,cupti"
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
    "$python" run_ladder.py --stages all --out "$measured/$problem" "${extra[@]}" || {
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
