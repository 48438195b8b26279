# `make lab` and `make test` set everything up by themselves. CI runs `make check` and every tier of `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTS := $(VENV)/.tests
SITE := $(VENV)/.site
# Modules are compiled when they are first imported: half of what is installed never is.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile
unexport PYTHONDONTWRITEBYTECODE
# Tests run in as many processes as there are cores; WORKERS=0 runs them in one.
WORKERS ?= auto
PYTEST := $(BIN)/python -m pytest -n $(WORKERS)
CODE := --dist worksteal -p no:nbval $(addprefix --ignore=tests/,double notebooks browser)

# Each notebook stays on one worker: its cells share a kernel.
NBVAL := --nbval-current-env --nbval-cell-timeout 180 --nbval-sanitize-with notebooks/nbval-sanitize.cfg

# One thread is steadier where other work shares the cores, and a whole tier takes about as long.
unit model notebooks strict browser night faults bare: export OMP_NUM_THREADS = 1
# kaleido takes this for its Chrome: what passes here passes on a machine without one.
unit model notebooks strict: export BROWSER_PATH = $(shell command -v false)

# What is wrong with the environment that is here, such as an old Python: it is then removed and made again.
ifneq ($(origin PYTHON),file)
ASKED := $(PYTHON)
endif
STALE := $(shell sh scripts/stale_environment.sh $(VENV) $(ASKED))

# The longest come first, so that no worker waits for one at the end.
LONG := $(patsubst %,notebooks/%.ipynb,elective_train_a_head 03_when_does_a_tree_pay 07_measuring)
LESSONS := $(LONG) $(filter-out $(LONG),$(wildcard notebooks/*.ipynb))

# What a machine may lack: a browser, programs, extras, a home.
BARE := $(addprefix tests/,test_cli.py test_packaging.py views/test_engine.py live loading/test_loading_fetching.py notebooks/test_saved.py)

.PHONY: help setup stale lab test check unit model notebooks strict browser night faults bare site slides release constraints

help: ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(READY) ## create .venv, install the lab and the course, fetch SmolLM2

# torch comes first and alone, so that a build already on the machine (CPU or CUDA) is taken and never replaced.
$(READY): pyproject.toml constraints.txt $(if $(STALE),stale)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "speclab needs Python 3.11 or newer; name one: make setup PYTHON=python3.12"; exit 1; }
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV) \
	  || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(BIN)/python scripts/install_torch.py
	$(PIP) -c constraints.txt -e .
	@$(BIN)/python -m speclab fetch smollm2 || echo "speclab uses its shipped models; 'speclab fetch smollm2' tries again."
	@touch $@

stale:
	@echo "$(VENV) $(STALE): it is made again"
	@rm -rf $(VENV)

# What tests and checks need is installed when they first run.
$(TESTS): $(READY)
	$(PIP) -c constraints.txt -e '.[dev,test]'
	@touch $@

lab: $(READY) ## open the lab in JupyterLab
	$(BIN)/python -m speclab lab

test: unit model notebooks browser ## run every tier

check: $(TESTS) ## lint, format, types, of Python and JavaScript
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy speclab training
	$(BIN)/python scripts/write_types.py --check
	$(BIN)/python scripts/check_javascript.py

unit: $(TESTS) ## tests without models
	HOME=$(CURDIR)/$(VENV)/home $(PYTEST) $(CODE) -m 'not model and not night' # a home in which nobody has worked

model: $(TESTS) ## tests on trained and random models and on a device double, and of the wheel
	$(PYTEST) $(CODE) -m 'model and not night'
	$(PYTEST) --dist worksteal -p no:nbval tests/double

notebooks: $(TESTS) $(SITE) ## run every notebook, and the tests of its exercises
	SPECLAB_QUICK=1 $(PYTEST) --dist loadfile --no-loadscope-reorder -W default $(NBVAL) --nbval-lax $(LESSONS)
	$(PYTEST) --dist loadfile -p no:nbval -m 'not night' tests/notebooks

strict: $(TESTS) ## run every notebook and compare what it prints and shows with what is saved
	$(PYTEST) --dist loadfile -W default $(NBVAL) --nbval notebooks

browser: $(TESTS) ## drive the lab and the exported page in headless Chromium
	@sh tests/browser/chromium.sh $(BIN)/python
	$(PYTEST) --dist loadfile --no-loadscope-reorder -p no:nbval -m 'not night' tests/browser

night: strict $(SITE) ## every case of every test; graders, Voilà, Notebook 7, marimo; the wheel, the site; lessons at full length
	@sh tests/browser/chromium.sh $(BIN)/python
	$(PYTEST) --dist worksteal -p no:nbval -m night --ignore=tests/double --ignore=tests/browser
	$(PYTEST) --dist loadfile -p no:nbval -m night tests/browser

bare: $(TESTS) ## run some tests as on a machine without browser, Node and home
	bash scripts/bare.sh $(PYTEST) --dist loadfile -p no:nbval $(BARE)
	bash scripts/bare.sh $(PYTEST) --dist loadfile -W default $(NBVAL) --nbval-lax notebooks/00_lab.ipynb

faults: $(TESTS) ## plant faults in a copy of the package; tests must notice (about ten minutes)
	$(BIN)/python scripts/plant_faults.py

# The site's packages are installed when it is first built or tested.
$(SITE): $(READY)
	$(PIP) -c constraints.txt -e '.[site]'
	@touch $@

site: $(SITE) ## the course as static pages: build/site/index.html
	$(BIN)/python docs/site/build.py build/site

slides: $(SITE) ## a deck of each lesson, for a projector without a network: build/slides/index.html
	$(BIN)/python docs/site/slides.py build/slides

release: faults ## build the package, check it, install it into a new environment and use it there
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/installed.py dist/*.whl

constraints: $(TESTS) $(SITE) ## pin what is installed now, every extra
	@sed -n '/^#/p' constraints.txt > $(VENV)/pins
	@$(BIN)/python -m pip freeze --exclude-editable | sed 's/^\(torch==[^+]*\)+.*/\1/' >> $(VENV)/pins
	@mv $(VENV)/pins constraints.txt
