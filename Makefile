# Each target is also a CI job. `make lab` and `make test` set everything up by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/pip install --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
NOTEBOOK_SECONDS ?= 180
# Tests run in as many processes as there are cores; WORKERS=0 runs them in one.
WORKERS ?= auto

# One thread is steadier where other work shares the cores; a whole tier takes about as long.
unit model double cuda notebooks browser: export OMP_NUM_THREADS ?= 1

.PHONY: help setup lab app test check format unit model double cuda notebooks saved browser chromium bench bench-lab constraints clean

help: ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(READY) ## create .venv, install everything, fetch SmolLM2; again when pyproject.toml or constraints.txt change

# torch comes first and alone, so that a build already on the machine (CPU or CUDA) is taken and never replaced.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "speclab needs Python 3.11 or newer; name one: make setup PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) \
	  || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PIP) -c constraints.txt torch
	$(PIP) -c constraints.txt -e '.[lab,bench,test]'
	@$(BIN)/speclab fetch smollm2 || echo "speclab goes on with its shipped models; 'speclab fetch smollm2' tries again."
	@touch $@

lab: $(READY) ## open the lab in JupyterLab
	$(BIN)/speclab lab

app: $(READY) ## show the lab as a page of its own, without code (Voilà)
	$(BIN)/speclab app

test: unit model double notebooks browser ## run every tier

check: $(READY) ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy speclab training

format: $(READY) ## let ruff mend what it can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

unit: $(READY) ## tests without trained models
	$(PYTEST) -n $(WORKERS) --dist worksteal -m 'not model and not double and not notebook and not browser'

model: $(READY) ## tests on the mini family and on random models
	$(PYTEST) -n $(WORKERS) --dist worksteal -m 'model and not notebook and not browser'

double: $(READY) ## decode on a device that is not there: what would fail on a GPU
	$(PYTEST) -n $(WORKERS) --dist worksteal tests/double

cuda: $(READY) ## on a machine with a GPU: the same tests on it, and what decoding costs there
	$(BIN)/python benchmarks/gpu.py --shape tiny
	$(PYTEST) tests/double/test_decoding.py

notebooks: $(READY) ## run every notebook top to bottom
	$(PYTEST) -n $(WORKERS) --dist loadfile -W default --nbval-lax --nbval-current-env --nbval-cell-timeout $(NOTEBOOK_SECONDS) \
	  notebooks $(wildcard tests/notebooks)

saved: $(READY) chromium ## run the notebooks and save them with a PNG beside each picture (NAMES=…: these alone)
	$(BIN)/python tests/notebooks/save.py $(NAMES)

browser: $(READY) chromium ## drive the lab in headless Chromium
	$(PYTEST) -m browser

chromium: $(READY)
	@sh tests/browser/chromium.sh $(BIN)/python

bench: $(READY) ## measure strategies on this machine
	$(BIN)/python benchmarks/host.py
	$(BIN)/speclab bench --protocol training-free --repeats 1
	$(BIN)/speclab bench

bench-lab: $(READY) chromium ## time clicks in the lab by the browser's clock
	$(BIN)/python benchmarks/clicks.py

constraints: $(READY) ## pin what is installed now
	@sed -n '/^#/p' constraints.txt > $(VENV)/pins
	@$(BIN)/pip freeze --exclude-editable | sed 's/^\(torch==[^+]*\)+.*/\1/' >> $(VENV)/pins
	@mv $(VENV)/pins constraints.txt

clean: ## remove caches and builds; .venv stays
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
