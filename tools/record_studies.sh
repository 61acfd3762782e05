#!/usr/bin/env bash
# Records results/reference/<gpu>/studies/<name>/ on this machine's GPU: every study in experiments/, or the named ones,
# side by side on several GPUs. An interrupted study continues. Exits with 1 if any stage failed or crashed.
# Look at the figures, run `python run_ladder.py readme`, and commit.
set -euo pipefail
cd "$(dirname "$0")/.."

# The longest first, so that the last one to finish began early.
longest="hidden-size batch-size depth cpp-mlp cutlass-mlp loss-curves"
[ $# -gt 0 ] || for study in $longest $(cd experiments && printf '%s\n' *.toml | sed 's/\.toml$//'); do
    case " $* " in *" $study "*) continue ;; esac
    [ ! -f "experiments/$study.toml" ] || set -- "$@" "$study"
done
for study in "$@"; do
    [ -f "experiments/$study.toml" ] || { echo "record: there is no study experiments/$study.toml" >&2; exit 2; }
done

python=.venv/bin/python
[ -x "$python" ] || python=python3

read -r gpus name < <("$python" -c 'from common.cuda.driver import devices as d; print(len(d()), *[g.name for g in d()[:1]])')
[ "$name" ] || { echo "record: no NVIDIA GPU here" >&2; exit 2; }
gpu=$(tr '[:upper:]' '[:lower:]' <<<"$name" | sed -E 's/nvidia |geforce //g; s/[^a-z0-9]+/-/g; s/^-|-$//g')

# Side by side every process finds the host busy, so measuring again would change nothing.
[ "$gpus" -le 1 ] || again="--remeasure 0"

measured=runs/record/$gpu/studies  # ignored by git, so that every record says that its tree was clean
jobs=()
for study in "$@"; do
    begun="experiments/$study.toml ${again:-} --out $measured/$study"
    [ ! -f "$measured/$study/study.json" ] || begun="--resume $measured/$study"
    jobs+=("$study" "$python run_ladder.py study $begun")
done
status=0
"$python" -m tools.side_by_side "$measured/logs" "${jobs[@]}" || {
    status=$?
    [ "$status" -eq 1 ] || exit "$status"
}

kept=results/reference/$gpu/studies
mkdir -p "$kept"
for study in "$@"; do
    rm -rf "${kept:?}/$study" "$measured/$study"/logs "$measured/$study"/*/{logs,profiles}
    mv "$measured/$study" "$kept/$study"
done
exit "$status"
