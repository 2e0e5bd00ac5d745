# `make demo` and `make test` need Linux, Python with its venv module (demo: >= 3.10, test: >= 3.11) and a C compiler;
# nothing else beforehand, and no GPU. Both do their set-up in .venv first; when that is done they start at once.
#
# The torch below is whatever build pip finds. PyPI's for x86 Linux is the CUDA one: it works, but is large. The CPU
# build is enough:
#   make test TORCH="<pip's options for PyTorch's CPU index> torch==2.13.0"

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
JOBS   ?= 2

BIN    := $(VENV)/bin
STAMP  := $(VENV)/.set-up
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
# loadgroup: the tests of one xdist_group share a worker, and so what they build
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

.PHONY: demo test test-full emulator lint format codegen clean cost

demo: $(STAMP)
	$(BIN)/k3moe demo $(ARGS)

test: emulator lint
	$(PYTEST) --backend interpreter -m "not slow" $(ARGS)
	$(PYTEST) --backend gfx950 -m "not slow" $(ARGS)

test-full: emulator lint
	$(PYTEST) --backend interpreter $(ARGS)
	$(PYTEST) --backend gfx950 $(ARGS)

emulator: $(STAMP)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "the gfx950 backend needs Python >= 3.11: tinygrad 0.14.0 does. Try: make clean test PYTHON=python3.12"; exit 1; }

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

codegen: $(STAMP)
	mkdir -p .cache
	$(BIN)/python tests/codegen/table.py > .cache/gfx950-codegen.csv
	mv .cache/gfx950-codegen.csv benchmarks/results/

cost: $(STAMP)
	mkdir -p .cache
	$(BIN)/python tests/cost/table.py > .cache/gfx950-cost.csv
	mv .cache/gfx950-cost.csv benchmarks/results/

# triton comes last and on its own: a CUDA build of torch pins another triton (2.13.0: 3.7.1), and asked for both, pip
# refuses. Nothing here uses what torch wants its triton for (torch.compile).
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Python >= 3.10 is needed; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "'$(PYTHON)' has no venv module. On Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	@command -v "$${CC:-cc}" >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || \
	  { echo "no C compiler (cc, gcc or clang). On Debian or Ubuntu: apt-get install gcc libc6-dev"; exit 1; }
	@echo "set-up in $(VENV): $(TORCH), triton, tools"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install $(TORCH)
	@$(PIP) install -c constraints.txt setuptools
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[test,dev]'
	@$(PIP) install -c constraints.txt --no-deps triton
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
