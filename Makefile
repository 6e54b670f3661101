# Every target sets up what it needs: a fresh clone needs only Python 3.11+, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup agents pictures demo compiled collected test test-all simulate docs lint types bench storm fuzz attack bench-quick bench-baseline fmt clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

setup: $(STAMP)

# What a person sees in a terminal, recorded from real commands: docs/pictures/*.svg.
pictures: setup
	$(BIN)/python -m examples.pictures

# Real agents from the npm registry, with a scripted model on loopback. Says so where node is missing.
agents: compiled
	$(BIN)/python -m tests.real_agents

demo: setup
	$(BIN)/python -m examples.demo

# Every command, daemon and worker loads pwf: it is compiled once, whatever the environment says about writing bytecode.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest
TOGETHER := -n $(or $(WORKERS),9) --dist worksteal
SERIAL = $(shell grep -rl --include='test_*.py' 'pytest.mark.serial' tests)

compiled: setup
	$(BIN)/python -m compileall -q pwf

# Types are checked on one core while pytest compiles the test files on the other. Then, alone, those that hold a measured
# time; then the others, several at once on two cores, since many of them wait for processes.
test: lint compiled
	$(MAKE) --no-print-directory -j2 types collected
	$(PYTEST) -m "serial and not rest" $(SERIAL)
	$(PYTEST) $(TOGETHER) -m "not serial and not rest"

collected: compiled
	@$(PYTEST) --collect-only -qq -m serial > /dev/null || $(PYTEST) --collect-only -qq -m serial

# What `make test` leaves out: long samples, thousands of runs, filled disks. Not the same tests again.
test-all: compiled
	$(PYTEST) -m rest

# One seed: `.venv/bin/python -m tests.sim SEED`, with its trace.
simulate: setup
	$(BIN)/python -m tests.sim --campaign $(or $(SEEDS),20000) --from $(or $(FROM),1) $(if $(JOBS),--jobs $(JOBS)) --every-branch

# What is made from the code: schemas, and what commands print as JSON. Tests hold these files.
docs: setup
	$(BIN)/python -m pwf.protocol.wire_schema > docs/protocol.schema.json
	$(BIN)/python -m pwf.cli.json_output schema > docs/json.schema.json
	$(BIN)/python -m pwf.cli.json_output page > docs/json.md

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

fmt: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m benchmarks

# A look in under two minutes: what has moved against the committed baseline, by ratio.
bench-quick: setup
	$(BIN)/python -m benchmarks --quick --against benchmarks/baseline.json

# On an idle machine, after a change that is meant to move it.
bench-baseline: setup
	$(BIN)/python -m benchmarks --quick --minutes 5 --json benchmarks/baseline.json

# SECONDS and SEED say how long it kills, and what is planned.
storm: setup
	$(BIN)/python -m tests.storm --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1)

# In a virtual environment of its own, since atheris has no wheels for every Python. SECONDS is for each target.
fuzz: setup
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),30)

# What somebody on this machine would try, each reported as held, broken or left out. As root also by two further users.
attack: setup
	$(BIN)/python -m tests.attack

clean:
	rm -rf $(VENV) .fuzz .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
