# the newest that works
PYTHON ?= $(shell for version in 3.14 3.13 3.12 3.11; do \
	python$$version -c 'import ensurepip, venv' 2>/dev/null && echo python$$version && break; done)
NO_PYTHON := FireArrow needs Python 3.11 to 3.14 with venv; install one, or set PYTHON=
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.built
WORKERS ?= 5
SOURCES := pyproject.toml setup.py $(shell find _native -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

# tests and benchmarks start thousands of processes; without bytecode on the disk each compiles all modules
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test build wheels deb image debug lint bench compare profile report clean
run: $(STAMP)
	$(BIN)/firearrow broker $(ARGS)
test: $(VENV)/.test
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)
build: $(STAMP)
wheels:
	@test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" && exit 1; }
	$(PYTHON) packaging/wheels.py $(ARGS)
lint: $(VENV)/.test
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint _native bench/native && $(BIN)/mypy
bench: $(VENV)/.test
	$(BIN)/pytest bench --benchmark-only $(ARGS)
compare: $(VENV)/.test
	$(BIN)/python -m bench.compare --rounds 3 $(ARGS)
profile: $(VENV)/.test
	$(BIN)/python -m bench.profile $(ARGS)
report: $(VENV)/.test
	$(BIN)/python -m bench.report $(ARGS)
deb: $(STAMP)
	packaging/deb/build.sh
image: deb
	packaging/image/build.sh
debug: $(VENV)/.test
	FIREARROW_DEBUG=1 $(BIN)/python setup.py -q build_ext --inplace --force && $(BIN)/pytest $(ARGS)

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" && exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
$(STAMP): $(VENV)/bin/python $(SOURCES)
	@echo "building (about two minutes on two cores) ..."
	PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --editable .
	@touch $@
$(VENV)/.test: $(STAMP) pyproject.toml
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["test"], sep="\n")' > $(VENV)/test.txt
	$(BIN)/pip install --quiet --requirement $(VENV)/test.txt
	@touch $@
clean:
	rm -rf $(VENV) build dist *.egg-info
	find _native -name '*.so' -o -name '*.c' | xargs rm -f
