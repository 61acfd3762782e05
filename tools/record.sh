#!/usr/bin/env bash
# Records results/reference/<gpu>/<problem>/ on this machine's GPU: runs the GPU tests, then the first three problems or
# the named ones, side by side on several GPUs. Run it from a committed tree, look at the figures, run
# `python run_ladder.py readme`, and commit. Exits with 1 if a stage failed or crashed; the record says so, too.
# One line a problem, and one for the tests, says how many seconds it took.
set -euo pipefail
cd "$(dirname "$0")/.."

# nsys needs one more process a stage and sees the same in every problem: once is enough, for the best-known stages.
# On wide networks the host does not matter; their batches and epochs are cut.
beyond="--stages torch-graph,torch-graph-amp,jax-scan,jax-scan-bf16,cuda-graph..cluster-fp16"
declare -A options=(
    [logistic]="--stages all --profile nsys,cupti --nsys-stages ladder,references"
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

read -r gpus name < <("$python" -c 'from common.cuda.driver import devices as d; print(len(d()), *[g.name for g in d()[:1]])')
[ "$name" ] || { echo "record: no NVIDIA GPU here" >&2; exit 2; }
gpu=$(tr '[:upper:]' '[:lower:]' <<<"$name" | sed -E 's/nvidia |geforce //g; s/[^a-z0-9]+/-/g; s/^-|-$//g')
# Side by side every process finds the host busy, so measuring again would change nothing.
[ "$gpus" -le 1 ] || again="--remeasure 0"

# In the ignored runs/ until all are measured: each record then says that its tree was clean, and the old record stays
# until the new one is complete. A failed test ends the recording.
measured=runs/record/$gpu
rm -rf "$measured"
jobs=(tests "bash -c 'tools/test_gpu.sh $python || exit 3'")
for problem in "$@"; do
    jobs+=("$problem" "$python run_ladder.py --out $measured/$problem ${options[$problem]} ${again:-}")
done
status=0
"$python" -m tools.side_by_side "$measured/logs" "${jobs[@]}" || {
    status=$?
    [ "$status" -eq 1 ] || exit "$status"
}

kept=results/reference/$gpu
mkdir -p "$kept"
for problem in "$@"; do
    rm -rf "$measured/$problem"/{logs,profiles} "${kept:?}/$problem"  # traces are large, and git does not keep them
    mv "$measured/$problem" "$kept/$problem"
done
exit "$status"
