# All tools are installed in the folder .venv. Requires GNU make 3.81 or newer.

# Interpreter: the first of these that is Python 3.11 or newer. To select another: make setup PYTHON=/path/to/python3
SUPPORTED = -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
    $$python $(SUPPORTED) 2>/dev/null && echo $$python && break; done)
BIN = .venv/bin

# Tests start Python hundreds of times; later processes load the bytecode that earlier ones write.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup test test-slow lint format kernels page check-page fresh-page chromium docs lock check-lock licenses advisories dist demo lessons bench-g2p bench-peers clean

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.* ## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F '|' '{ printf "make %-11s %s\n", $$1, $$2 }'

setup: .venv/setup.stamp ## install Pellucid in .venv, in the versions of constraints.txt

# A test that waits for ever ends its process (faulthandler_timeout). Without the limit of restarts, the tests would then
# not end: with the distribution by file, pytest-xdist waits for the process that it has started in its place.
PYTEST = $(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0

# The checks before the tests use one core each and run in parallel. The kernels are compiled before the tests.
test: .venv/test.stamp chromium ## check style, types, pages, documentation, and run the tests without the slow ones
	$(MAKE) --jobs 3 lint check-page kernels docs
	$(PYTEST) -m "not slow"

test-slow: .venv/test.stamp chromium kernels ## run the slow tests
	$(PYTEST) -m slow

lint: .venv/test.stamp ## check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/test.stamp ## format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

kernels: .venv/test.stamp
	@$(BIN)/python tests/compile_functions.py

page: .venv/test.stamp web/node_modules/.stamp ## build web/ into two pages of pellucid/, which are committed; needs Node
	$(BIN)/python -m pellucid.viewer.typescript web/src/data/contents.ts
	cd web && npm run build

# The built pages are committed, so that an installation needs no Node. This target compares them with new builds.
check-page:
	@if command -v npm >/dev/null; then $(MAKE) fresh-page; \
	elif [ -n "$$CI" ]; then echo "npm is missing: the pages cannot be compared with new builds (install Node 20 or newer)" >&2; exit 1; \
	else echo "npm is missing: the built pages are tested without new builds (install Node 20 or newer)"; fi

fresh-page: web/node_modules/.stamp
	cd web && npm run check && npm test && npx vite build --outDir ../build/page --emptyOutDir --logLevel warn && \
	    npx vite build --config vite.model.config.ts --outDir ../build/model-page --emptyOutDir --logLevel warn
	@diff -r build/page pellucid/viewer/page && diff -r build/model-page pellucid/export/page || \
	    { echo "a built page differs from a new build of web/: run make page and commit the files" >&2; exit 1; }

web/node_modules/.stamp: web/package.json web/package-lock.json
	cd web && npm ci --no-audit --no-fund
	@touch $@

# Browser of the tests in tests/browser. Continuous integration requires it; elsewhere its tests may be skipped.
chromium:
	@if [ -x /usr/bin/chromium-headless-shell ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update && apt-get install --yes --no-install-recommends chromium-headless-shell || \
	        [ -x /usr/bin/chromium ]; \
	elif [ -x /usr/bin/chromium ]; then :; \
	else echo "Chromium is missing: tests in a browser are skipped (as root: apt-get install chromium-headless-shell)" >&2; \
	    [ -z "$$CI" ]; fi

docs: .venv/test.stamp ## build the documentation site, in build/site
	$(BIN)/python docs/build_site.py

# A pinned version changes only if pyproject.toml excludes it. To upgrade a package:
# make lock LOCK_FLAGS='--upgrade-package NAME==VERSION'. CPU_WHEELS: page or folder with the CPU build of PyTorch.
CPU_WHEELS ?= https://download.pytorch.org/whl/cpu/torch/
LOCKS ?= .
COMPILE = uv pip compile --quiet --generate-hashes --custom-compile-command 'make lock'
lock: ## pin all dependencies with hashes, in requirements.lock, requirements-cpu.lock and constraints.txt; needs uv
	$(COMPILE) --universal --python-version 3.11.5 --all-extras --output-file $(LOCKS)/requirements.lock pyproject.toml $(LOCK_FLAGS)
	{ sed -n '/^#/p' constraints.txt; sed -n 's/ *\\$$//; /^[a-z0-9]/p' $(LOCKS)/requirements.lock; } >$(LOCKS)/constraints.new
	mv $(LOCKS)/constraints.new $(LOCKS)/constraints.txt
	sed -n 's/^torch==.*/&+cpu/p' $(LOCKS)/constraints.txt | $(COMPILE) --python-platform x86_64-manylinux_2_28 --python-version 3.11.5 \
	    --extra dev --extra release --constraint $(LOCKS)/constraints.txt --find-links $(CPU_WHEELS) --no-emit-find-links --no-annotate \
	    --output-file $(LOCKS)/requirements-cpu.lock pyproject.toml -

# Hashes are left out of the comparison: a release gets more of them when its authors add wheels.
check-lock: ## compare the locks with new ones; needs uv
	rm -rf build/locks && mkdir -p build/locks && cp requirements.lock requirements-cpu.lock build/locks
	$(MAKE) lock LOCKS=build/locks
	@for file in requirements.lock requirements-cpu.lock; do \
	    for folder in . build/locks; do sed '/--hash=/d; s/ *\\$$//' $$folder/$$file >$$folder/$$file.pins; done; \
	    diff $$file.pins build/locks/$$file.pins || { rm $$file.pins; echo "$$file is stale: run make lock and commit the files" >&2; exit 1; }; \
	    rm $$file.pins; \
	done

licenses: .venv/test.stamp ## check the licenses of all dependencies and write docs/licenses.md; needs PyPI
	$(BIN)/python tests/package_licenses.py

advisories: ## look up the locked versions in the advisories of PyPI; needs uv
	uvx pip-audit@2.10.1 --strict --requirement requirements.lock --require-hashes --disable-pip

dist: .venv/test.stamp ## build the wheel and the source distribution, in dist, and test them outside the clone
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,release]'
	$(BIN)/zizmor --offline --quiet .github/workflows
	rm -rf dist
	$(BIN)/python tests/installed_wheel.py dist

demo: setup ## train on spelled digits and write a report, in runs/demo
	$(BIN)/pellucid recipe digits-attention --run runs/demo

lessons: .venv/test.stamp ## run the lessons and write their pages, pictures and notebooks, in docs/lessons
	$(BIN)/python docs/lessons/build.py

bench-g2p: setup ## train and score grapheme-to-phoneme conversion, in runs/g2p-sigmorphon2020
	$(BIN)/pellucid recipe g2p-sigmorphon2020 --run runs/g2p-sigmorphon2020

bench-peers: setup ## compare Pellucid with JoeyNMT, OpenNMT-py, eole, yoyodyne and Phonetisaurus, in runs/peers
	$(BIN)/python benchmarks/peers/pronunciations.py --train examples/english/lexicon.csv \
	    --test examples/english/test.csv --out runs/peers/pronunciations
	$(BIN)/python benchmarks/peers/run.py --jobs 2

clean: ## remove caches and build files, except runs and .venv
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . \( -path ./.venv -o -path ./.git -o -path ./runs \) -prune -o -name __pycache__ -type d -exec rm -rf {} +

# A stamp has the time of its installation, so that nothing is installed twice. pip is the last file of a new
# environment; without it the environment is incomplete and is created again.
.venv/bin/pip:
	@if ! $(or $(PYTHON),false) $(SUPPORTED) 2>/dev/null; then \
	    echo "Pellucid needs Python 3.11 or newer; $(if $(PYTHON),$(PYTHON) is not,none is on the path)." >&2; \
	    echo "Install it, or select an interpreter: make setup PYTHON=/path/to/python3" >&2; exit 1; fi
	$(PYTHON) -m venv .venv

.venv/setup.stamp: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[train]'
	@touch $@

.venv/test.stamp: .venv/setup.stamp
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
