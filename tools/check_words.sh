#!/usr/bin/env bash
# Checks the spelling of all text, British where tools/house_words.txt says so, and the prose of the documents.
set -euo pipefail
cd "$(dirname "$0")/.."

files() {
    git ls-files -z -- "$@" ':!results' ':!tests/golden' ':!tools/house_words.txt'
}

files '*.md' '*.py' '*.cu' '*.cuh' '*.cpp' '*.h' '*.sh' '*.toml' '*.yaml' Makefile |
    xargs -0 .venv/bin/codespell -D - -D tools/house_words.txt
files '*.md' | xargs -0 .venv/bin/proselint check --config tools/proselint.json
