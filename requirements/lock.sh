#!/usr/bin/env bash
# Renews the exact versions that `make setup` and `make test` install: resolves pyproject.toml in a fresh
# environment and writes down what came out. Usage: requirements/lock.sh [PYTHON]
set -euo pipefail
cd "$(dirname "$0")/.."
python="${1:-python3}"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

freeze() { # freeze TARGET HEADER: everything installed but this project itself
    { echo "# $2"; echo "# Written by requirements/lock.sh; renew with: make lock"
      "$scratch/venv/bin/python" -m pip freeze --all --exclude-editable \
          | grep -v -i -E '^(pip|setuptools|wheel|inference-harness)( |=)' | sed 's/+cpu$//' | LC_ALL=C sort -f; } > "$1"
}

"$python" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --editable '.[openvino]'
freeze requirements/bench.txt "The harness and its embedded engine, OpenVINO on CPU: what 'make bench' needs."
"$scratch/venv/bin/python" -m pip install --quiet --editable '.[dev]'
freeze requirements/dev.txt "requirements/bench.txt and the test tools: what 'make test' needs."
