# Headrace. `make help` lists what there is to do.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ARGS   ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# pip must not ask for another pip: the versions of everything it installs are in constraints.txt.
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help install run cluster test unit lint format bench interop faults sim docs packages clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[36m%-10s\033[0m %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "  ARGS=… is passed on, for example: make run ARGS='--kafka-listen 0.0.0.0:9092'"

install: $(VENV)/.installed ## Make .venv with the command .venv/bin/headrace (quick when nothing changed)

run: install ## Run a broker on localhost:9092 with its data in ./headrace-data
	@echo "For a tour in another terminal, with a queue of its own and a pipeline on Spark: $(BIN)/headrace demo"
	$(BIN)/headrace serve $(ARGS)

cluster: install ## Run three brokers and an etcd on this machine, with their data in ./headrace-cluster
	$(BIN)/headrace cluster dev $(ARGS)

test: install packages lint unit ## Check everything: lint, types, layers, then every test but the slow ones

# Two processes, since most tests wait more than they work. It ends by itself even where a process does not.
unit: install
	timeout --kill-after=30 3600 $(BIN)/python -m pytest -q -m "not slow" -n 2 --dist loadgroup $(ARGS)

lint: install ## Check style, types and layers without changing a file
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: install ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: install ## Measure against the physical limit and against other brokers (long)
	$(BIN)/pip install -q -r bench/requirements.txt -c constraints.txt
	$(BIN)/python bench/run.py $(ARGS)

interop: install packages ## Run every client library against a real broker process (Java, Maven and npm for some)
	$(BIN)/python -m pytest tests/interop $(ARGS)
	$(BIN)/python interop/kafka_python_suite.py
	$(BIN)/python interop/moto_suite.py
	$(BIN)/python interop/kafkajs/run.py
	$(BIN)/python interop/java/run.py
	$(BIN)/python interop/spark_kafka/run.py

# One test at a time, for some watch the broker's memory and speed. The last line: slow tests from elsewhere; 5 is none.
faults: install packages ## Kill, tear and fill the disk at every step, with many more examples than in make test (an hour)
	$(FAULTS) tests/property tests/faults $(ARGS)
	$(FAULTS) tests --ignore=tests/property --ignore=tests/faults -m slow $(ARGS) || test $$? -eq 5

FAULTS = timeout --kill-after=30 7200 $(BIN)/python -m pytest -v --durations=10 --hypothesis-profile=long --timeout=1200

# Stops at the first seed that fails and prints it: again with make sim FIRST=<seed> SEEDS=1.
sim: install ## Run simulated clusters through every trouble, by seeds (SEEDS=300, FIRST=0), on all cores
	$(BIN)/python -m headrace.testing.sim --seeds $(SEEDS) --first-seed $(FIRST) $(ARGS)

SEEDS ?= 300
FIRST ?= 0

docs: install ## Write docs/settings.md anew from the settings in the code
	$(BIN)/python -m headrace.config.reference docs/settings.md

clean: ## Remove .venv and caches; data and results stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# hatchling goes in first, so that the build too uses the version of constraints.txt.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Headrace needs Python 3.11 or newer; name one with: make $(firstword $(MAKECMDGOALS)) PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
		|| { echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --constraint constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[cluster,dev,spark]'
	@touch $@

# What tests need and pip does not have: kcat is a client, strace makes a disk fail, Spark runs on Java, a pipeline
# writes to PostgreSQL, and a cluster agrees through etcd, over networks that are cut. Without
# them those tests are skipped.
PACKAGES := kcat=kcat strace=strace java=openjdk-17-jre-headless /usr/lib/postgresql/*/bin/postgres=postgresql \
	etcd=etcd-server etcdctl=etcd-client openssl=openssl ip=iproute2

packages:
	@missing=$$(for each in $(PACKAGES); do command -v $${each%%=*} >/dev/null || echo $${each##*=}; done); \
	[ -n "$$missing" ] || exit 0; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		echo "Installing for the tests:" $$missing; \
		export DEBIAN_FRONTEND=noninteractive; \
		{ apt-get install -qq -y --no-install-recommends $$missing \
			|| { apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing; }; } >/dev/null; \
	else \
		echo "Only root can install what some tests need; they are skipped. To run them: sudo apt-get install" $$missing; \
	fi
