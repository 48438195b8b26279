# Each target is also a CI job. `make lab` and `make test` set everything up by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SITE := $(VENV)/.site
# Half of what is installed is never imported, so modules are compiled when they first are, and stay so: where the
# environment has Python keep none of it, each process of the tests would compile torch again, which takes it 8 s.
PIP := $(BIN)/pip install --disable-pip-version-check --no-compile
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest
NOTEBOOK_SECONDS ?= 180
# Tests run in as many processes as there are cores; WORKERS=0 runs them in one.
WORKERS ?= auto
# Without the tiers that stand in folders of their own, and without the plugin that notebooks alone need.
CODE := -n $(WORKERS) --dist worksteal -p no:nbval $(addprefix --ignore=tests/,double notebooks browser)

# One thread is steadier where other work shares the cores; a whole tier takes about as long. The environment's choice
# is not asked: tests must not depend on it.
unit model double cuda notebooks mutants browser: export OMP_NUM_THREADS = 1

.PHONY: help setup lab app test check format unit model double cuda notebooks mutants saved browser chromium site slides release bench bench-lab constraints clean

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
	$(PIP) -c constraints.txt -e '.[bench,test]'
	@$(BIN)/speclab fetch smollm2 || echo "speclab goes on with its shipped models; 'speclab fetch smollm2' tries again."
	@touch $@

lab: $(READY) ## open the lab in JupyterLab
	$(BIN)/speclab lab

app: $(READY) ## show the lab as a page of its own, without code (Voilà)
	$(BIN)/speclab app

test: unit model double notebooks mutants browser ## run every tier

check: $(READY) ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy speclab training

format: $(READY) ## let ruff mend what it can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

unit: $(READY) ## tests without trained models
	$(PYTEST) $(CODE) -m 'not model'

model: $(READY) ## tests on the mini family and on random models
	$(PYTEST) $(CODE) -m model

double: $(READY) ## decode on a device that is not there: what would fail on a GPU
	$(PYTEST) -n $(WORKERS) --dist worksteal -p no:nbval tests/double

cuda: $(READY) ## on a machine with a GPU: the same tests on it, and what decoding costs there
	$(BIN)/python benchmarks/gpu.py --shape tiny
	$(PYTEST) tests/double/test_decoding.py

notebooks: $(READY) chromium ## run every notebook top to bottom
	$(PYTEST) -n $(WORKERS) --dist loadfile -W default --nbval-lax --nbval-current-env --nbval-cell-timeout $(NOTEBOOK_SECONDS) \
	  notebooks $(wildcard tests/notebooks)

mutants: $(READY) ## change speclab in one line at a time, and see that a notebook notices (ALL=--all: every notebook)
	$(BIN)/python tests/notebooks/mutated.py $(ALL)

saved: $(READY) chromium ## run the notebooks and save them with a PNG beside each picture (NAMES=…: these alone)
	$(BIN)/python tests/notebooks/save.py $(NAMES)

browser: $(READY) $(SITE) chromium ## drive the lab, the site and the slides in headless Chromium
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -p no:nbval tests/browser

chromium: $(READY)
	@sh tests/browser/chromium.sh $(BIN)/python

# What the site is built with is installed when it is first built, or tested.
$(SITE): $(READY)
	$(PIP) -c constraints.txt -e '.[site]'
	@touch $@

site: $(SITE) ## the course as static pages: build/site/index.html
	$(BIN)/python docs/site/build.py build/site

slides: $(SITE) ## each notebook as slides: build/slides/index.html
	$(BIN)/python docs/site/slides.py build/slides

release: $(READY) ## build what is published, check it, install it into an environment made from nothing and use it there
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/installed.py dist/*.whl

bench: $(READY) ## measure strategies on this machine
	$(BIN)/python benchmarks/host.py
	$(BIN)/speclab bench --protocol training-free --repeats 1
	$(BIN)/speclab bench

bench-lab: $(READY) chromium ## time clicks in the lab by the browser's clock
	$(BIN)/python benchmarks/clicks.py

constraints: $(READY) $(SITE) ## pin what is installed now, every extra
	$(PIP) -c constraints.txt -e '.[bench,site,test]'
	@sed -n '/^#/p' constraints.txt > $(VENV)/pins
	@$(BIN)/pip freeze --exclude-editable | sed 's/^\(torch==[^+]*\)+.*/\1/' >> $(VENV)/pins
	@mv $(VENV)/pins constraints.txt

clean: ## remove caches and builds; .venv stays
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
