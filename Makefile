# Two commands on a fresh machine: `make demo` and `make test`. Each sets itself up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-for-the-demo
PEERS := .venv-peers
ARVIZ0 := .venv-arviz0

.PHONY: demo test test-long check format bench bench-peers bench-hard bench-sgais bench-shift bench-online bench-weather bench-nested bench-roads bench-traps calibrate clean

demo: $(DEMO_STAMP)
	$(BIN)/weighbridge demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long"

# What takes as long again: statistics over many runs, processes, the checks of other libraries.
# Last, ArviZ of before 1.0, which cannot share an environment with ArviZ 1.
test-long: $(STAMP) $(ARVIZ0)/.installed
	$(BIN)/python -m pytest -n 2 --dist worksteal -m long --durations=20 tests
	$(ARVIZ0)/bin/python -m pytest -W ignore tests/results/test_arviz.py

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# With NUTS beside its peers, which live in an environment of their own.
bench: $(STAMP) $(PEERS)/.installed
	$(BIN)/python -m benchmarks

# Weighbridge beside its peers, hours long: PEERS_ARGUMENTS="--merge" goes on where it stopped.
bench-peers: $(STAMP) $(PEERS)/.installed
	$(BIN)/python -m benchmarks.peers $(PEERS_ARGUMENTS)

# Traps with exact answers, the held-back ones: hours long, and goes on where it stopped.
# TRAPS_ARGUMENTS="--seeds 0-39" runs traps for development.
TRAPS_ARGUMENTS ?= --held-back --methods auto smc nested dynesty ultranest blackjax
bench-traps: $(STAMP) $(PEERS)/.installed
	$(BIN)/python -m benchmarks.traps $(TRAPS_ARGUMENTS)

bench-hard: $(STAMP)
	$(BIN)/python -m benchmarks.accuracy.hard

# Up to a million rows, hours long: SGAIS_ARGUMENTS="--merge --only linear-1e6" measures one row.
bench-sgais: $(STAMP)
	$(BIN)/python -m benchmarks.sgais.headline $(SGAIS_ARGUMENTS)

# 100,000 rows whose distribution shifts, in order and shuffled: an hour, and goes on where it stopped.
# And rows sorted by a label, and a stream in which a mode takes over.
bench-shift: $(STAMP)
	$(BIN)/python -m benchmarks.sgais.shift
	$(BIN)/python -m benchmarks.sgais.row_orders

# Online: exact Bayes factors, change points, ten million rows. Half an hour.
bench-online: $(STAMP)
	$(BIN)/python -m benchmarks.online.bayes_factors
	$(BIN)/python -m benchmarks.online.changes
	$(BIN)/python -m benchmarks.online.long_watch

# Hostile inputs and faults, a hundred kills, and a week of rough weather in minutes. Needs
# redis-server for all of it.
bench-weather: $(STAMP)
	$(BIN)/python -m benchmarks.weather.attacks
	$(BIN)/python -m benchmarks.weather.kills
	$(BIN)/python -m benchmarks.weather.week

# Nested sampling, a day long; every command goes on where it stopped.
bench-nested: $(STAMP) $(PEERS)/.installed
	$(BIN)/python -m benchmarks.nested.accuracy
	$(BIN)/python -m benchmarks.nested.calibration
	$(BIN)/python -m benchmarks.nested.moves
	$(BIN)/python -m benchmarks.nested.dynamic
	$(BIN)/python -m benchmarks.nested.online
	$(BIN)/python -m benchmarks.nested.growth
	$(BIN)/python -m benchmarks.nested.documents
	$(BIN)/python -m benchmarks.nested.documents --agreement
	$(BIN)/python -m benchmarks.nested.peers

# Bridges, Laplace, importance sampling and ratios: an afternoon; "--merge" goes on where it stopped.
bench-roads: $(STAMP)
	$(BIN)/python -m benchmarks.roads.bridge --merge
	$(BIN)/python -m benchmarks.roads.laplace --merge
	$(BIN)/python -m benchmarks.roads.importance --merge
	$(BIN)/python -m benchmarks.roads.ratios --merge
	$(BIN)/python -m benchmarks.roads.documents
	$(BIN)/python -m benchmarks.roads.occam

calibrate: $(STAMP)
	$(BIN)/python -m benchmarks.accuracy.calibrate

# The demo needs the core and matplotlib; what tests need on top of it comes with them.
$(DEMO_STAMP): pyproject.toml
	@echo "Setting up (once): weighbridge with JAX and matplotlib goes into $(VENV). A minute or two."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[plot]'
	touch $@

$(STAMP): pyproject.toml
	@echo "Setting up (once): weighbridge and what its tests need go into $(VENV). A few minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]'
	touch $(STAMP) $(DEMO_STAMP)

$(ARVIZ0)/.installed: pyproject.toml
	$(PYTHON) -m venv $(ARVIZ0)
	$(ARVIZ0)/bin/python -m pip install --quiet --upgrade pip
	$(ARVIZ0)/bin/python -m pip install --quiet --editable '.[arviz0]'
	touch $@

$(PEERS)/.installed: benchmarks/peers/requirements.txt benchmarks/peers/requirements-numpy1.txt
	$(PYTHON) -m venv $(PEERS)/main
	$(PEERS)/main/bin/python -m pip install --quiet --requirement benchmarks/peers/requirements.txt
	$(PYTHON) -m venv $(PEERS)/numpy1
	$(PEERS)/numpy1/bin/python -m pip install --quiet --requirement benchmarks/peers/requirements-numpy1.txt
	touch $@

clean:
	rm -rf $(VENV) $(PEERS) $(ARVIZ0) .mypy_cache .pytest_cache .ruff_cache build *.egg-info
