# Everything that is done with a checkout. Needs Python 3.11 or newer, git and make; `make help` lists the targets.

# The first interpreter that is new enough; another one: make setup PYTHON=/path/to/python3.13
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python3.14; do \
	if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo "$$name"; break; fi; done)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-services test-more nightly coverage lint format lab notebooks check-notebooks readme bench lock ci

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf '%-16s %s\n' "$$name" "$$text"; done

setup: $(STAMP) ## make the environment in .venv, with exactly the versions of requirements.lock

# Modules compile when they are first used: most of what JupyterLab brings never is.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found; give one: make setup PYTHON=/path/to/python3" >&2; exit 2; }
	@test -x $(BIN)/pip || "$(PYTHON)" -m venv --clear $(VENV)
	$(PIP_INSTALL) --no-compile --require-hashes --requirement requirements.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

demo readme bench: export MPLBACKEND = Agg
demo: setup ## replay the bundled recordings under several configurations; table, plots and report
	$(BIN)/workbench demo

test: setup ## the quick tests, the gate of every commit
	$(PYTEST) -p no:nbval -m "not slow and not network and not device" -n $(WORKERS) --junitxml=reports/tests.xml

test-services: setup ## tests that need a server or a browser; skipped, with the reason, where there is none
	$(PYTEST) -m "network and not device" --junitxml=reports/tests-services.xml || [ $$? -eq 5 ]

# The quick tests have a part of these.
MORE_TESTS := tests/service/test_duckdb_contract.py tests/conformance/test_vectors.py tests/replay/test_own_sessions.py \
	tests/evaluate tests/regression tests/report tests/replay/test_package.py tests/replay/test_prompt.py tests/store tests/test_cli.py \
	tests/test_readme.py tests/test_store_command.py tests/recordings/test_stored.py tests/recordings/test_redact.py \
	tests/replay/test_needed.py tests/replay/test_planner.py tests/replay/test_replay.py tests/replay/test_workers.py tests/facts tests/production
test-more: setup ## the whole store contract, recorded cases over the store, whole sweeps, comparisons, prices and exports
	$(PYTEST) -p no:nbval -m "slow and not network and not device" -n $(WORKERS) $(MORE_TESTS)

nightly: setup ## the slow tests and many more examples of each law
	$(PYTEST) -m "not network and not device" -n $(WORKERS) --hypothesis-profile=nightly --junitxml=reports/nightly.xml

coverage: setup ## which branches the quick tests never take
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m "not slow and not network and not device"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

lint: setup ## rules, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## mend what the rules can mend by themselves
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

lab: setup ## open the notebooks
	$(BIN)/jupyter lab notebooks

notebooks: setup ## run all notebooks and store their outputs
	$(BIN)/python tools/run_notebooks.py notebooks

check-notebooks: setup ## run all notebooks and compare with the stored outputs
	$(PYTEST) --nbval notebooks || [ $$? -eq 5 ]

readme: setup ## make the README's generated parts, its picture and the table of seed examples anew
	$(BIN)/python tools/make_pictures.py
	$(BIN)/python tools/option_table.py
	$(BIN)/python tools/seed_table.py

bench: setup ## measure speed and memory
	$(BIN)/python bench/run.py

# The resolver sees all platforms and Python versions at once, so it lives in an environment of its own.
lock: ## resolve all versions anew into requirements.lock and requirements-tokenizers.lock
	"$(PYTHON)" -m venv --clear .cache/lock
	.cache/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	.cache/lock/bin/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --fork-strategy fewest \
		--upgrade --generate-hashes --no-annotate --custom-compile-command "make lock" --quiet --output-file requirements.lock
	.cache/lock/bin/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		print(*project["optional-dependencies"]["tokenizers"], sep="\n")' | \
	.cache/lock/bin/uv pip compile - --constraint requirements.lock --universal --python-version 3.11 \
		--fork-strategy fewest --upgrade --generate-hashes --no-annotate --custom-compile-command "make lock" --quiet \
		--output-file requirements-tokenizers.lock

ci: ## what the server runs
	bash .ci/run
