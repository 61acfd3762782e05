#!/usr/bin/env bash
# Measures on this machine's GPU what results/reference/<gpu>/studies/<name>/ keeps: every study in experiments/, or those
# that are named. What was interrupted goes on where it was. It ends with 1 when a stage failed or crashed anywhere. Look
# at the figures, then `python run_ladder.py readme`, and commit.
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || for file in experiments/*.toml; do set -- "$@" "$(basename "$file" .toml)"; done
for study in "$@"; do
    [ -f "experiments/$study.toml" ] || { echo "record: there is no study experiments/$study.toml" >&2; exit 2; }
done

python=.venv/bin/python
[ -x "$python" ] || python=python3

name=$("$python" -c 'from common.cuda.driver import devices; print(*[gpu.name for gpu in devices()[:1]])')
[ "$name" ] || { echo "record: no NVIDIA GPU here" >&2; exit 2; }
gpu=$(tr '[:upper:]' '[:lower:]' <<<"$name" | sed -E 's/nvidia |geforce //g; s/[^a-z0-9]+/-/g; s/^-|-$//g')

measured=runs/record/$gpu/studies  # ignored by git, so that the records of all say that their tree was clean
status=0
for study in "$@"; do
    begun=("experiments/$study.toml" --out "$measured/$study")
    [ ! -f "$measured/$study/study.json" ] || begun=(--resume "$measured/$study")
    "$python" run_ladder.py study "${begun[@]}" || {
        status=$?
        [ "$status" -eq 1 ] || exit "$status"
    }
done

kept=results/reference/$gpu/studies
mkdir -p "$kept"
for study in "$@"; do
    rm -rf "${kept:?}/$study" "$measured/$study"/*/logs
    mv "$measured/$study" "$kept/$study"
done
exit "$status"
