#!/usr/bin/env bash
# Runs the GPU tests of every hand-written kernel under NVIDIA's compute-sanitizer: memcheck (out of bounds, misaligned),
# racecheck (hazards in shared memory), initcheck (global memory read before it is written), synccheck (barriers that not
# all threads reach); or the named tools. Exits with 1 if a tool finds anything, and shows its log.
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- memcheck racecheck initcheck synccheck
for tool in "$@"; do
    case $tool in
    memcheck | racecheck | initcheck | synccheck) ;;
    *) echo "sanitize: there is no tool $tool; name memcheck, racecheck, initcheck or synccheck" >&2; exit 2 ;;
    esac
done

PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
command -v compute-sanitizer >/dev/null || {
    echo "sanitize: no compute-sanitizer on the PATH or in /usr/local/cuda/bin; it comes with the CUDA toolkit" >&2
    exit 2
}
python=.venv/bin/python
[ -x "$python" ] || python=python3

# First without a tool: this compiles the kernels, and a plain failure is not mistaken for a finding.
tests=(-q -x -p no:cacheprovider tests/gpu/test_kernels.py tests/gpu/test_primitive_kernels.py
    tests/gpu/test_streamed.py tests/gpu/test_ring.py tests/gpu/test_last_layer.py)  # these launch clusters of blocks
"$python" -m pytest "${tests[@]}"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
found=0
for tool in "$@"; do
    begin=$SECONDS
    # LADDER_SANITIZER gives each tensor an allocation of its own, so that memcheck sees a kernel that leaves it.
    # memcheck would also report driver calls that a library tries and the driver refuses; those are no findings.
    quietly=()
    [ "$tool" != memcheck ] || quietly=(--report-api-errors no)
    if LADDER_SANITIZER=$tool compute-sanitizer --tool "$tool" --error-exitcode 9 --log-file "$log" "${quietly[@]}" \
        "$python" -m pytest "${tests[@]}"; then
        echo "sanitize: $tool: clean ($((SECONDS - begin)) s)"
    else
        found=1
        head -60 "$log"
        echo "sanitize: $tool: NOT clean, see above"
    fi
done
exit "$found"
