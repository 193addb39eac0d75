#!/usr/bin/env bash
# Renews the exact versions that `make setup` and `make test` install: resolves the embedded engine and pyproject.toml
# together in a fresh environment, and writes down what came out. Usage: requirements/lock.sh [PYTHON]
set -euo pipefail
cd "$(dirname "$0")/.."
python="${1:-python3}"
engine=backends/environments/openvino-cpu.txt
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

install() { "$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }

freeze() { # freeze TARGET BELOW HEADER: what is installed and not yet known; BELOW, which TARGET includes, is known
    { echo "# $3"; echo "# Written by requirements/lock.sh; renew with: make lock"; echo "-r $2"
      "$scratch/venv/bin/python" -m pip freeze --all --exclude-editable | awk -F '[= ;]' '
          function name(word) { word = tolower(word); gsub(/[_.]/, "-", word); return word }
          NR == FNR { known[name($1)]; next }
          !(name($1) in known)' "$scratch/known" - | LC_ALL=C sort -f; } > "$scratch/frozen"
    cp "$scratch/frozen" "$1"
    cat "$1" >> "$scratch/known"
}

"$python" -m venv "$scratch/venv"
install --editable . uv
PATH="$scratch/venv/bin:$PATH" python -m harness.engines action=lock engine=openvino device=cpu
install --editable . --requirement "$engine"
{ printf '%s\n' pip setuptools wheel uv inference-harness; cat "$engine"; } > "$scratch/known"
freeze requirements/bench.txt "../$engine" "The harness, and its embedded engine, OpenVINO on CPU: what 'make bench' needs."
install --editable '.[dev]'
freeze requirements/dev.txt bench.txt "The same and the test tools: what 'make test' needs."
