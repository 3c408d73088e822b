# make book and make test do everything, set-up included. PYTHON=... chooses the interpreter (3.11 or later).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .venv-peers
export OMP_NUM_THREADS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)

.PHONY: help setup book site wheel lab test lint format faults bench bench-gpu bench-peers clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY)  ## make .venv from constraints.txt (the other targets do it when needed)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fednb needs Python 3.11 or later: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "$$(grep ^torch== constraints.txt)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

book: $(READY)  ## execute the notebooks and build the book: _build/html/index.html
	$(BIN)/python book/_tools/make_book.py html

site: $(READY)  ## the book as a folder for any web server: _build/site
	$(BIN)/python book/_tools/make_book.py site

wheel: $(READY)  ## the library as a wheel: dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

lab: $(READY)  ## open the book's notebooks in JupyterLab
	$(BIN)/jupyter lab book

test: $(READY) lint book  ## check the style, run the notebooks, build the book, run all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term --cov-fail-under=90

lint: $(READY)  ## ruff and mypy, without changing anything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## let ruff put the style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

faults: $(READY)  ## kill, stop and starve sweeps for half an hour: nothing may be lost
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults

bench: $(READY)  ## measure training speed against baselines; peers too, once installed
	$(BIN)/python -m tests.bench

bench-gpu: $(READY)  ## the same table on a machine with a GPU: please send it
	$(BIN)/python -m tests.bench --gpu

# BlazeFL wants Python 3.12 or later; without one it is left out
BLAZEFL_PYTHON ?= python3.12
BLAZEFL := $(if $(shell $(BLAZEFL_PYTHON) -c 'print(1)' 2>/dev/null),blazefl)

bench-peers: $(addprefix $(PEERS)/,$(addsuffix /.ready,pfl fedlab flower fedjax $(BLAZEFL)))  ## install the peers that bench compares with

$(PEERS)/blazefl/.ready: PYTHON := $(BLAZEFL_PYTHON)

$(PEERS)/%/.ready: tests/bench/peers/requirements-%.txt constraints.txt
	$(PYTHON) -m venv $(PEERS)/$*
	$(PEERS)/$*/bin/python -m pip install --quiet "$$(grep ^torch== constraints.txt)"
	$(PEERS)/$*/bin/python -m pip install --quiet --no-deps --requirement $<
	touch $@

clean:  ## remove what was built, keep .venv
	rm -rf _build .run dist
