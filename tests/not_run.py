"""The blocks of the README and of `docs/` that no test runs as they are written, by their first line, each with why.

It is the only place that takes a block out: `tests/unit/test_documents.py` compares it with the pages. What is left out
is still checked for its syntax.
"""

_MAKE = "installs packages and runs for as long as one likes; tests/unit/tools runs what the Makefile calls"
_FRAMEWORK = "has an environment of its own, which make interop installs: interop/{}/tasks.py runs this block"
_BEFORE = "the program before the move: it needs {}, which are not installed here; the one after it is run"

NOT_RUN = {
    "README.md": {
        "make run      # a broker on localhost:9092, with its data in ./headrace-data": _MAKE,
        "$ headrace bench": "measures for a minute; tests/interop/test_cli_client.py has a shorter run",
    },
    "docs/from-celery.md": {"from celery import Celery": _BEFORE.format("Celery and Redis")},
    "docs/from-rabbitmq.md": {"import json": _BEFORE.format("RabbitMQ and pika")},
    "docs/operations.md": {
        "install -D deploy/headrace.toml /etc/headrace/headrace.toml": (
            "changes the machine; tests/unit/test_deploy.py checks these files"
        ),
        "for broker in queue1 queue2 queue3; do": "restarts three machines over ssh",
    },
    "docs/pipelines.md": {
        "pip install 'headrace[spark]'        # and Java 17; see quickstart.md": "installs 500 MB of packages",
        "headrace pipeline run revenue.toml": (
            "starts a Spark of its own until Ctrl-C; tests/pipelines/test_pipeline_cli.py does so with another file"
        ),
    },
    "docs/queues.md": {
        "from celery import Celery": _FRAMEWORK.format("celery"),
        "$ celery -A tasks worker --without-gossip --without-mingle --without-heartbeat": (
            "has an environment of its own, which make interop installs: interop/celery/run.py has these options"
        ),
        "import dramatiq": _FRAMEWORK.format("dramatiq"),
        "from taskiq import SmartRetryMiddleware": _FRAMEWORK.format("taskiq"),
    },
    "docs/quickstart.md": {
        "make run": _MAKE,
        "make run ARGS='--data-dir /tmp/orders --kafka-listen 127.0.0.1:9092'": _MAKE,
    },
}
