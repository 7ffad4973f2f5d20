# Two commands do everything on a fresh machine: `make demo` and `make test`.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
NAME ?= first-light

# The last line of `make demo` is the demo's JSON, also when another make calls it.
MAKEFLAGS += --no-print-directory

.PHONY: setup setup-system demo test check format bench proof

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[synth,video,dev]'
	touch $@

# Nothing here needs a Debian package yet; .ci/run calls this where tests do.
setup-system:
	@true

demo: setup
	$(BIN)/allears demo --json

test: setup
	$(BIN)/python -m pytest -q --numprocesses 2 --dist loadfile

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Lhotse and the other peers are only installed where they are measured.
$(VENV)/.peers: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	touch $@

bench: $(VENV)/.peers
	$(BIN)/python benchmarks/plan.py

proof: $(VENV)/.peers
	$(BIN)/python -m proof $(NAME) $(LINES)
