# Each command works on a machine that has only Python (3.11 or later), pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python keeps compiled files, and pytest rewritten ones: workers then collect the tests in half the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo quick test test-all test-storages test-machines newest oldest dist attack bench reproduce docs lint clean

demo: $(VENV)/demo.stamp  ## factor digits and the cones of the paper, write demo.png and a report
	$(BIN)/python examples/demo.py

QUICK := $(addprefix tests/, cones/test_clustering.py cones/test_rank_one.py cones/test_bounds.py \
	data/test_doors.py judge/test_dual_bound.py linalg/test_nnls.py solve/test_inits.py \
	solve/test_loop.py solve/test_poisson.py solve/test_solvers.py test_estimator.py test_pipeline.py \
	io/test_columns.py test_same_answer.py cli/test_known_parts.py::test_fixed_components_are_matched_by_name \
	scale/test_dask.py::test_large_data_begin_in_single_on_every_storage)

quick: $(VENV)/test.stamp  ## oracles, theorems, every storage, the estimator: within a minute
	$(BIN)/python -m pytest -n auto $(QUICK)

test: $(VENV)/test.stamp lint  ## everything that must hold before a change lands: about six minutes
	$(BIN)/python -m pytest -n auto

test-all: $(VENV)/test.stamp lint  ## also browsers, kills, clusters, large data; prints the coverage
	$(BIN)/python -m pytest -n auto -m "" --cov=conenmf --cov-report=term:skip-covered

test-storages: $(VENV)/test.stamp  ## storages, containers and own parts under two kernels of OpenBLAS
	$(BIN)/python tests/machines.py storages

test-machines: $(VENV)/test.stamp  ## the tests as each of several processors (LEGS="haswell twins" for some)
	$(BIN)/python tests/machines.py $(LEGS)

newest:  ## the tests with the newest packages that pip finds for PYTHON (TESTS="tests/io" for a part)
	$(PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/python -m pip install --quiet --disable-pip-version-check \
		--upgrade --upgrade-strategy eager --editable ".[test]"
	.venv-newest/bin/python -m pip list --disable-pip-version-check --format freeze
	.venv-newest/bin/python -m pytest -n auto $(TESTS)

oldest:  ## the tests with the oldest packages that are allowed, and the table of docs/about.md (TESTS="tests/cones" for a part)
	$(PYTHON) -m venv --clear .venv-oldest
	$(PYTHON) .ci/oldest.py > .venv-oldest/oldest.txt
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint .venv-oldest/oldest.txt --editable ".[test]"
	SCIPY_ARRAY_API=1 .venv-oldest/bin/python -m pytest -n auto $(TESTS)
	$(if $(TESTS),,.venv-oldest/bin/python .ci/oldest.py --write)

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

bench: $(VENV)/bench.stamp  ## speed, quality and memory, each as ratios taken side by side
	set -e; for part in sets small iteration first gpu; do $(BIN)/python benchmarks/speed.py $$part; done
	set -e; for name in readme.py counts.py choosing_k.py zoo.py "certainty.py bounds" "certainty.py limits" \
		"certainty.py unique" "certainty.py verdict" "fields.py cells" "fields.py signatures" \
		"fields.py measurements" "fields.py hyperspy" "large.py file" "large.py memory" "large.py cluster" "large.py workers"; do $(BIN)/python benchmarks/$$name; done

reproduce: $(VENV)/reproduce.stamp  ## the paper's tables and figures, and a verdict per claim
	$(BIN)/python benchmarks/paper/reproduce.py

docs: $(VENV)/docs.stamp  ## the documentation, into docs/_build/html; needs no internet
	$(BIN)/sphinx-build -W --keep-going -n -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

$(VENV)/%.stamp: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	touch $@

clean:
	rm -rf $(VENV) .venv-newest .venv-oldest .venv-dist .venv-without-numba .machines dist demo.png demo.html docs/_build docs/auto_examples docs/generated
