# Each command works on a machine that has only Python (3.11 or later), pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test oldest dist attack bench reproduce docs lint clean

demo: $(VENV)/demo.stamp  ## factor a matrix, print what was found, write demo.png and a report
	$(BIN)/python examples/demo.py

test: $(VENV)/test.stamp lint  ## everything that must hold before a change lands
	$(BIN)/python -m pytest -n auto

oldest:  ## the tests with the oldest packages that pyproject.toml allows (TESTS="tests/cones" for a part)
	$(PYTHON) -m venv .venv-oldest
	$(PYTHON) .ci/oldest.py > .venv-oldest/oldest.txt
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint .venv-oldest/oldest.txt --editable ".[test]"
	SCIPY_ARRAY_API=1 .venv-oldest/bin/python -m pytest -n auto -W default::DeprecationWarning $(TESTS)

dist: $(VENV)/dist.stamp  ## a wheel and an sdist, and all tests with them in a new environment
	rm -rf dist .venv-dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet --disable-pip-version-check \
		"conenmf[test] @ file://$(CURDIR)/$$(ls dist/*.whl)"
	tar -xzf dist/*.tar.gz -C .venv-dist
	cd .venv-dist/conenmf-* && ../bin/python -m pytest -n auto $(TESTS)
	sha256sum dist/*

attack: $(VENV)/test.stamp  ## random fits and killed processes against what is guaranteed: ten minutes
	$(BIN)/python -m attack --minutes $(or $(MINUTES),10) $(ATTACK)

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/bench.stamp  ## speed and memory, as ratios taken side by side
	$(BIN)/python benchmarks/readme.py
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/answers.py
	$(BIN)/python benchmarks/around.py
	$(BIN)/python benchmarks/counts.py
	set -e; for part in bounds floors thinning; do $(BIN)/python benchmarks/count_quality.py $$part; done
	$(BIN)/python benchmarks/holes.py
	$(BIN)/python benchmarks/stability.py --drawn
	$(BIN)/python benchmarks/replicates.py
	$(BIN)/python benchmarks/cells_at_scale.py --cells 100000
	$(BIN)/python benchmarks/cells.py
	$(BIN)/python benchmarks/uniqueness.py
	$(BIN)/python benchmarks/rank.py
	$(BIN)/python benchmarks/choosing_k.py
	$(BIN)/python benchmarks/inits.py
	$(BIN)/python benchmarks/lower_bounds.py
	$(BIN)/python benchmarks/zoo.py
	$(BIN)/python benchmarks/cluster.py
	$(BIN)/python benchmarks/out_of_core.py
	$(BIN)/python benchmarks/online.py
	$(BIN)/python benchmarks/report_page.py
	$(BIN)/python benchmarks/text_file.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/peers.py

PAPER := figure1 figure2 figure2_right table1 figure3 violated ard table2 table3 races figure6 \
	example table6 table7 beyond open_noise open_sampling open_online

reproduce: $(VENV)/cli.stamp  ## the paper's tables and figures, and a verdict per claim
	set -e; for script in $(PAPER); do $(BIN)/python benchmarks/paper/$$script.py --quick; done
	$(BIN)/python benchmarks/paper/page.py --quick

docs: $(VENV)/docs.stamp  ## the documentation, into docs/_build/html; needs no internet
	$(BIN)/sphinx-build -W --keep-going -n -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

$(VENV)/%.stamp: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	touch $@

clean:
	rm -rf $(VENV) .venv-oldest .venv-dist dist demo.png demo.html docs/_build docs/auto_examples docs/generated
