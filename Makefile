# Headrace. `make help` lists what there is to do.

# PYTHON names another interpreter than the first that fits. EXTRAS is what make run and make cluster install with the
# broker: all that the tour needs, or nothing with EXTRAS=.
PYTHON ?=
VENV   ?= .venv
EXTRAS ?= cluster,spark
ARGS   ?=
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

INSTALL = @python=$$(tools/find-python $(PYTHON)) && exec "$$python" -m tools.install --venv $(VENV) $(if $(PYTHON),--this-python)

.PHONY: help install run cluster test check unit lint format bench interop faults sim smoke docs screenshots site packages clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[36m%-10s\033[0m %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "  ARGS=… is passed on, for example: make run ARGS='--kafka-listen 0.0.0.0:9092 --insecure'"
	@echo "  EXTRAS= installs the broker alone, without Spark; PYTHON=python3.12 takes another Python"

install: ## Make .venv with everything that is developed with (quick when nothing changed)
	$(INSTALL) --extras cluster,dev,spark

run: ## Run a broker on localhost:9092 with its data in ./headrace-data
	$(INSTALL) --extras '$(EXTRAS)'
	@echo "For a tour of a minute, in another terminal: $(BIN)/headrace demo"
	@echo "The dashboard: localhost:9324/ui"
	$(BIN)/headrace serve $(ARGS)

cluster: ## Run three brokers and an etcd on this machine, with their data in ./headrace-cluster
	$(INSTALL) --extras '$(EXTRAS),cluster'
	$(BIN)/headrace cluster dev $(ARGS)

check: install lint ## Check what one works on: lint, types, layers and the quick tests, in a few minutes
	timeout --kill-after=30 1200 $(PARALLEL) tests/unit tests/property $(ARGS)

# Side by side: the types are checked by one process, and the tests begin with reading themselves. What lint has printed
# comes last, where one looks.
test: install packages ## Check everything: lint, types, layers, and every test but the slow ones
	@failed=; printed=$$(mktemp); $(MAKE) lint > $$printed 2>&1 & lint=$$!; trap "kill $$lint" INT TERM; \
	$(MAKE) unit || failed="$$failed unit"; wait $$lint || failed="$$failed lint"; cat $$printed; rm $$printed; \
	[ -z "$$failed" ] || { echo "FAILED:$$failed (see above)"; exit 1; }

# The first line lets one process compile the tests, which each of the others would do for itself. It ends by itself even
# where a process does not.
unit: install
	@timeout --kill-after=30 600 $(BIN)/python -m pytest -qq -m "not slow" --collect-only $(ARGS) > /dev/null || true
	timeout --kill-after=30 3600 $(PARALLEL) $(ARGS)

# Four processes, also on two cores, since most tests wait more than they work. The order is that of tests/conftest.py.
PARALLEL = $(BIN)/python -m pytest -q -m "not slow" -n 4 --dist loadgroup --no-loadscope-reorder

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
	$(BIN)/python interop/celery/run.py
	$(BIN)/python interop/dramatiq/run.py
	$(BIN)/python interop/taskiq/run.py
	$(BIN)/python interop/registry/run.py
	$(BIN)/python interop/registry_suite.py $(if $(CONFLUENT_KAFKA_PYTHON),--checkout $(CONFLUENT_KAFKA_PYTHON))
	$(BIN)/python interop/registry/validation.py
	$(BIN)/python interop/sqs_consumer/run.py
	$(BIN)/python interop/kafkajs/run.py
	$(BIN)/python interop/java/run.py
	$(BIN)/python interop/java/matrix.py
	$(BIN)/python interop/flink/run.py
	$(BIN)/python interop/go/run.py
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

smoke: ## Install and use Headrace with each Python that it is for, from empty caches (PYTHONS='3.11 3.12 3.13')
	@python=$$(tools/find-python $(PYTHON)) && exec "$$python" -m tools.smoke $(PYTHONS)

docs: install ## Write the generated parts of docs/settings.md, docs/metrics.md and docs/api-http.md
	$(BIN)/python -m headrace.config.reference docs/settings.md
	$(BIN)/python -m headrace.admin.reference docs/api-http.md
	$(BIN)/python -m headrace.monitor.reference docs/metrics.md
	$(BIN)/python -m headrace.monitor.health.alert_rules > deploy/prometheus/alerts.yml

screenshots: install packages ## Make the pictures of the dashboard in docs/images, with a real browser
	SCREENSHOTS=$(PICTURES) $(BIN)/python -m pytest -q tests/browser/test_screenshots.py

PICTURES ?= all

site: ## Build the documentation as a static site in build/site, and fail on broken links
	$(INSTALL) --extras site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "The documentation is in build/site/index.html"

clean: ## Remove .venv and caches; data and results stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# What tests need and pip does not have: kcat and curl are clients, strace makes a disk fail, Spark runs on Java, a pipeline
# writes to PostgreSQL, a cluster agrees through etcd, over networks that are cut, and Prometheus scrapes it. Without
# them those tests are skipped.
PACKAGES := kcat=kcat strace=strace java=openjdk-17-jre-headless /usr/lib/postgresql/*/bin/postgres=postgresql \
	etcd=etcd-server etcdctl=etcd-client openssl=openssl ip=iproute2 curl=curl chromium=chromium promtool=prometheus

packages:
	@python=$$(tools/find-python $(PYTHON)) && exec "$$python" -m tools.packages $(PACKAGES)
