#!/usr/bin/env bash
# Measures on this machine's GPU what results/reference/<gpu>/<problem>/ keeps: the GPU tests, then each recorded
# problem, or those that are named. Run it from a committed tree, look at the figures, then `python run_ladder.py readme`, and commit.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.venv/bin/python
[ -x "$python" ] || python=python3

gpu=$("$python" -c 'from common.cuda.driver import devices; print(devices()[0].name.split()[-1].lower())')
"$python" -m pytest -q -m gpu

record() { # problem, then the options that make it
    local folder=results/reference/$gpu/$1
    rm -rf "$folder"
    "$python" run_ladder.py --stages all --out "$folder" "${@:2}"
    rm -r "$folder/logs"
}

[ $# -gt 0 ] || set -- logistic hidden-256 hidden-128-128-128
for problem in "$@"; do
    case $problem in
        logistic) record logistic ;;
        hidden-256) record hidden-256 --hidden 256 ;;
        hidden-128-128-128) record hidden-128-128-128 --hidden 128,128,128 --batch-size 32 ;;
        *) echo "record: there is no problem $problem" >&2; exit 2 ;;
    esac
done
