# the newest that works
PYTHON ?= $(shell for version in 3.14 3.13 3.12 3.11; do \
	python$$version -c 'import ensurepip, venv' 2>/dev/null && echo python$$version && break; done)
NO_PYTHON := FireArrow needs Python 3.11 to 3.14 with venv; install one, or set PYTHON=
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.built
# without compiling: Python compiles what is imported, a tenth of what is installed
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
WORKERS ?= 5
SOURCES := pyproject.toml setup.py $(shell find _native -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

# tests and benchmarks start thousands of processes; without bytecode on the disk each compiles all modules
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test coverage api build wheels deb image debug environment lint bench compare profile report clean
.SECONDARY:
run: $(STAMP)
	$(BIN)/firearrow broker $(ARGS)
test: environment
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)
coverage: environment
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --cov --cov-report=term --cov-report=xml:build/coverage/coverage.xml $(ARGS)
api: environment
	$(BIN)/python -m tests.meta.api $(ARGS)
build: $(STAMP)
wheels:
	@test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" && exit 1; }
	$(PYTHON) packaging/wheels.py $(ARGS)
lint: environment
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint _native bench/native && $(BIN)/mypy
bench: environment
	$(BIN)/pytest bench --benchmark-only $(ARGS)
compare: environment
	$(BIN)/python -m bench.compare --rounds 3 $(ARGS)
profile: environment
	$(BIN)/python -m bench.profile $(ARGS)
report: environment
	$(BIN)/python -m bench.report $(ARGS)
deb: $(STAMP)
	packaging/deb/build.sh
image:
	@packaging/image/build.sh --check
	@$(MAKE) --no-print-directory deb
	packaging/image/build.sh
debug: environment
	FIREARROW_DEBUG=1 $(BIN)/python setup.py -q build_ext --inplace
	@rm $(VENV)/.compiled
	$(BIN)/pytest $(ARGS)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" && exit 1; }
	$(PYTHON) -m venv $(VENV)
$(VENV)/%.txt: pyproject.toml | $(BIN)/python
	@$(BIN)/python -c 'import tomllib; of = tomllib.load(open("pyproject.toml", "rb")); run = of["project"]["dependencies"]; \
		print(*{"build": of["build-system"]["requires"], "run": run, "test": [*run, *of["project"]["optional-dependencies"]["test"]]}["$*"], sep="\n")' > $@
$(VENV)/.test-packages: | $(VENV)/.run-packages
$(VENV)/.run-packages: | $(VENV)/.build-packages
$(VENV)/.%-packages: $(VENV)/%.txt
	$(PIP) --requirement $<
	@touch $@
$(VENV)/.compiled: $(VENV)/.build-packages $(SOURCES)
	@echo "building (about 80 seconds on two cores) ..."
	$(BIN)/python -W ignore setup.py -q build_ext --inplace
	@touch $@
# what was compiled is installed once: a changed .pyx needs no pip
$(STAMP): pyproject.toml setup.py | $(VENV)/.compiled $(VENV)/.run-packages
	$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@
# for the tests: their packages come from the network while the C compiler works
environment:
	@$(MAKE) --no-print-directory --silent --jobs=2 $(STAMP) $(VENV)/.test-packages
clean:
	rm -rf $(VENV) build dist *.egg-info
	find _native -name '*.so' -o -name '*.c' -o -name '*.pyi' | xargs rm -f
