# Two commands do everything: `make bench` runs the main job, `make test` runs what CI runs.
# Both make .venv from exact versions first; a second call installs nothing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.installed-bench
DEV_STAMP := $(VENV)/.installed-dev
export HF_HUB_OFFLINE ?= 1

.DEFAULT_GOAL := help
.PHONY: help bench nightly test test-at-once test-alone browser test-unit test-engines lint setup setup-dev lock lock-engines clean

help: ## What can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

bench: $(RUN_STAMP) ## Run the main job: three workloads on a real engine, then a report
	@$(BIN)/python -m harness

NIGHTLY ?=
nightly: $(RUN_STAMP) ## Has serving got worse? The first night is accepted, later ones are gated (NIGHTLY="workload=rag …")
	@$(BIN)/python -m harness.engines action=install engine=$(or $(patsubst backend=%,%,$(filter backend=%,$(NIGHTLY))),openvino)
	@$(BIN)/python -m harness.gate gate.first=accept $(NIGHTLY)

setup: $(RUN_STAMP) ## Make .venv with the harness and its embedded engine

setup-dev: $(DEV_STAMP) ## The same with the test tools

# A file of tests is run by one process, which starts for it what it asks. Those that wait most come first, so that they
# wait while others compute. What judges times (marked alone) has the machine to itself, after all others.
WORKERS ?= 3
AT_ONCE := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

test: browser $(DEV_STAMP) lint ## Everything CI runs: lint, unit, integration, engine and browser tests
	$(BIN)/python -m harness.engines action=install engine=onnxruntime
	@$(MAKE) --no-print-directory --keep-going -j1 test-at-once test-alone

test-at-once:
	$(BIN)/python -m pytest $(AT_ONCE) -m "not alone" tests/engines tests/integration tests/browser tests/unit

test-alone:
	$(BIN)/python -m pytest -m alone tests/browser tests/engines tests/integration

browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	  echo "The browser tests need Debian's Chromium. Type: sudo apt-get install -y chromium chromium-driver"; exit 2; }

test-unit: $(DEV_STAMP) ## Unit tests only: no browser, no engine
	$(BIN)/python -m pytest $(AT_ONCE) tests/unit

# Engines whose environment is gigabytes and whose start takes minutes; make test-engines ENGINES=vllm for some of them.
ENGINES ?= vllm,sglang
comma := ,

test-engines: $(DEV_STAMP) ## Install the heavy engines and run the conformance suite against each (PYTEST_ARGS=…)
	@set -e; for engine in $(subst $(comma), ,$(ENGINES)); do \
	  $(BIN)/python -m harness.engines action=install engine=$$engine; done
	$(BIN)/python -m pytest tests/engines/test_conformance.py tests/engines/test_openvino_export.py \
	  --engines $(ENGINES) $(PYTEST_ARGS)

lint: $(DEV_STAMP) ## Style, types and the rules of which room may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

lock: ## Renew the exact versions under requirements/
	requirements/lock.sh $(PYTHON)

lock-engines: $(RUN_STAMP) ## Renew the exact versions of every engine's environment
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/python -m harness.engines action=lock

clean: ## Remove the environment and everything derived (recorded runs stay)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is older. Type: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "Making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "venv is missing. Type: sudo apt-get install -y python3-venv"; exit 2; }

# pyproject.toml is no prerequisite of the interpreter, so an edited one re-installs without a new environment.
$(RUN_STAMP): $(BIN)/python requirements/bench.txt backends/environments/openvino-cpu.txt pyproject.toml
	@echo "Installing exact versions from requirements/bench.txt (about a minute, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/bench.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(DEV_STAMP): $(RUN_STAMP) requirements/dev.txt
	@echo "Installing the test tools from requirements/dev.txt"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
	@touch $@
