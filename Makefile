# Two commands do everything, each making its own .venv from pinned versions:
#   make demo    the main job, on the CPU        make test    lint, types and all tests
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-slow docs format pictures attack bench clean

demo: .venv/base
	$(BIN)/statewise demo

# Tests that need a browser, a compiler or OpenGL are skipped where it is missing; -rs says why.
test: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -m "not slow" -n 2 --dist worksteal -rfEs

test-slow: .venv/dev
	$(BIN)/pytest -m slow

# Fails on any warning. Open docs/_build/html/index.html.
docs: .venv/docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "the site is in docs/_build/html/index.html"

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pictures: .venv/base
	$(BIN)/python docs/make_pictures.py
	@echo "docs/make_videos.py films the examples: give it the folders of trained runs"

attack: .venv/dev
	$(BIN)/python benchmarks/attack.py

bench: .venv/base
	$(BIN)/python benchmarks/environment.py
	$(BIN)/python benchmarks/training.py

.venv/base: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --editable ".[report,video]"
	touch $@

.venv/dev: .venv/base
	$(PIP) --editable ".[dev]"
	touch $@

.venv/docs: .venv/base
	$(PIP) --editable ".[docs]"
	touch $@

clean:
	rm -rf .venv out
