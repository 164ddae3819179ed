# Everything that is needed is made on first use: a virtual environment with hash-pinned requirements.
PYTHON ?= python3
UV_VERSION = 0.13.8
BIN = .venv/bin

# The tests start hundreds of processes. Each would compile the package anew, if the environment forbids to keep bytecode.
unexport PYTHONDONTWRITEBYTECODE

# How long `make soak` goes on, in minutes, and what makes it do the same again.
MINUTES ?= 60
SEED ?= 1

# The port of `make dev`.
PORT ?= 3000

# The agents of `make test-cluster`, and the days on which they speak.
AGENTS ?= 1000
DAYS ?= 366

# The tests of pure logic: they need no lake, no server and no other process.
PURE = $(addprefix memory_pipeline_tests/,domain configuration models/deterministic/language/test_dates.py test_settings.py)

# The tests of the core, which `make test-lowest` runs with the lowest versions of its libraries.
CORE = $(addprefix memory_pipeline_tests/,client configuration domain graph lake memories reader search writer)

.PHONY: help demo dev quick test test-thorough test-lowest lint types size types-elsewhere site tests coverage test-cluster soak bench docs lock clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.venv/.installed: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15) and "Python 3.11 to 3.14 is needed; name one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --compile-bytecode --require-hashes -r requirements.lock
	VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --no-deps -e .
	touch $@

demo: .venv/.installed  ## Run a sample year through the whole chain and show what is remembered
	@mkdir -p .dagster && cp deploy/dagster.yaml .dagster/
	@DAGSTER_HOME=$(CURDIR)/.dagster $(BIN)/memory-pipeline demo --root ./demo-lake

dev: .venv/.installed  ## Open the demo's lake in Dagster, on http://localhost:3000; make dev PORT=3001 takes another port
	@mkdir -p .dagster && cp deploy/dagster.yaml .dagster/
	@$(BIN)/python -c 'import socket, sys; sys.exit(socket.socket().connect_ex(("127.0.0.1", $(PORT))) == 0 and "port $(PORT) is taken; choose another one: make dev PORT=3001")'
	DAGSTER_HOME=$(CURDIR)/.dagster MEMORY_PIPELINE_ROOT=$${MEMORY_PIPELINE_ROOT:-./demo-lake} $(BIN)/dagster dev --port $(PORT)

quick: export MYPY_NUM_WORKERS = 2
quick: lint types  ## Lint, types and the tests of pure logic: the inner loop, in less than a minute
	$(BIN)/pytest -n 2 --dist worksteal $(PURE)

test: lint types size types-elsewhere site tests  ## Run all checks: lint, types, architecture, documentation, tests (about 40 minutes)

test-thorough: lint types  ## The large versions of the tests, before a release (hours)
	MEMORY_PIPELINE_THOROUGH=1 $(BIN)/pytest -n auto --dist worksteal -rs

test-lowest: .venv/.installed  ## The core's tests with the lowest versions that pyproject.toml accepts
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-lowest
	VIRTUAL_ENV=.venv-lowest $(BIN)/uv pip install --quiet --resolution lowest-direct \
		--requirement pyproject.toml --extra run --extra s3 --extra langgraph --extra models --extra sessions
	VIRTUAL_ENV=.venv-lowest $(BIN)/uv pip install --quiet --no-deps -e .
	VIRTUAL_ENV=.venv-lowest $(BIN)/uv pip install --quiet filelock flask flask-cors hypothesis 'moto[s3]' pytest pytest-xdist
	.venv-lowest/bin/pytest -n auto --dist worksteal -rs $(CORE) memory_pipeline_tests/tools/test_langgraph.py

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: .venv/.installed
	$(BIN)/mypy

# No page shows the marks of a code block, or loads anything from another host.
site: .venv/.installed  ## Build the documentation as a site, in build/site; a broken link is an error
	rm -rf build/pages build/site
	mkdir -p build/pages
	tar cf - --exclude 'docs/*.py' *.md docs deploy benchmarks/README.md dbt_like_sql/README.md clients/typescript/README.md | tar xf - -C build/pages
	$(BIN)/zensical build --strict --clean
	$(BIN)/python docs/generate_llms.py
	! grep -rnF --include='*.html' '```' build/site
	! grep -rnE --include='*.html' '<(script|link|img|iframe)[^>]* (src|href)="?(https?:)?//' build/site

size: .venv/.installed  ## Count the lines of code by package; more than in pyproject.toml fail
	$(BIN)/python -m benchmarks.code_size

types-elsewhere: .venv/.installed  ## Check the package's types for macOS and Windows, which lack functions
	$(BIN)/mypy --platform darwin --no-warn-unreachable --cache-dir .mypy_cache/darwin -p memory_pipeline
	$(BIN)/mypy --platform win32 --no-warn-unreachable --cache-dir .mypy_cache/win32 -p memory_pipeline

tests: .venv/.installed
	$(BIN)/pytest -n auto --dist worksteal -rs -m 'not cluster and not slow_environment'
	$(BIN)/pytest -n 0 -rs -m slow_environment

coverage: .venv/.installed  ## Run the tests and print which lines of the product none of them reaches (an hour)
	$(BIN)/pytest -n auto --dist worksteal -rs --cov --cov-report=term --cov-report=html:build/coverage

test-cluster: .venv/.installed  ## Backfill over two Celery workers, PostgreSQL, Redis and S3, and kill one: make test-cluster AGENTS=1000 DAYS=3
	MEMORY_PIPELINE_CLUSTER_AGENTS=$(AGENTS) MEMORY_PIPELINE_CLUSTER_DAYS=$(DAYS) $(BIN)/pytest -m cluster -n 0 -rs -s memory_pipeline_tests/harnesses/cluster

soak: .venv/.installed  ## Simulated traffic with kills and faults: make soak MINUTES=10 SEED=7
	$(BIN)/python -m memory_pipeline_tests.harnesses.soak --minutes $(MINUTES) --seed $(SEED)

bench: .venv/.installed  ## Measure speed and size (minutes; quote ratios, machines are noisy)
	$(BIN)/python -m benchmarks

docs: .venv/.installed  ## Write what is generated from the code: pages, and with Node.js the types of the TypeScript client
	$(BIN)/python docs/generate_reference.py
	$(BIN)/python docs/generate_api.py
	$(BIN)/python docs/generate_openapi.py
	cd clients/typescript && npm ci --ignore-scripts && npm run generate

lock: .venv/.installed  ## Write requirements.lock anew
	VIRTUAL_ENV=.venv $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-strip-extras --no-emit-index-url \
		--no-annotate --no-header --extra dev --extra cluster --extra kubernetes --group small-model --python-version 3.11 --output-file requirements.lock pyproject.toml

clean:  ## Remove the environment, the demo's lake and all caches
	rm -rf .venv .venv-lowest .dagster demo-lake artefacts .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
