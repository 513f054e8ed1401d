"""confluent-kafka-python's own integration tests against a real `headrace serve` process.

    python interop/confluent_suite.py --checkout <path> [--brokers 3] [pytest arguments]

The path is that of a checkout of confluent-kafka-python; its source archive has no tests. Those of the schema registry
and of share groups are left out. `TEST_CONSUMER_GROUP_PROTOCOL=consumer` runs them with the protocol of
KIP-848.
"""

import sys

from client_suite import Options, Unavailable, run

_FOLDERS = ("admin", "consumer", "producer", "serialization")
_SETTINGS = {"group.initial.rebalance.delay.ms": 0}

EXPECTED_FAILURES = {
    "test_incremental_alter_configs": "expects min.insync.replicas for all topics as of KRaft",
}
"""Test, without its parameters, to the reason why it cannot pass."""


FAILURES_IN_A_CLUSTER = {"test_basic_operations": "ends with ACLs, which are on for a single broker only"}


def main() -> int:
    options = Options.read(sys.argv[1:])
    try:
        folder = options.folder("tests/integration", "confluent-kafka-python")
    except Unavailable as reason:
        print(f"confluent-kafka-python's own tests are not run: {reason}.")
        return 0
    print(f"confluent-kafka-python: its integration tests against {options.subject}", flush=True)
    return run(
        folder,
        [*(f"tests/integration/{name}" for name in _FOLDERS), "-p", "confluent_plugin", *options.arguments],
        brokers=options.brokers,
        settings=_SETTINGS,
        environment=lambda bootstrap: {"BROKERS": bootstrap},
        users={"sasl_user": "sasl_pass"},
        expected_failures=EXPECTED_FAILURES if options.brokers == 1 else {**EXPECTED_FAILURES, **FAILURES_IN_A_CLUSTER},
    )


if __name__ == "__main__":
    sys.exit(main())
