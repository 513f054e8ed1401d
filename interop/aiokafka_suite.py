"""aiokafka's own tests that want a broker, against a real `headrace serve` process.

    python interop/aiokafka_suite.py --checkout <path> [--brokers 3] [pytest arguments]

The path is that of a checkout of aiokafka in the version that is installed; its source archive has no tests.
"""

import sys

from client_suite import Options, Unavailable, run

_KAFKA_VERSION = "4.1.0"
_SETTINGS = {"num.partitions": 2, "group.initial.rebalance.delay.ms": 0}
"""As the suite starts Apache Kafka."""

FAILURES_IN_A_CLUSTER = dict.fromkeys(
    ("test_describe_cluster", "test_describe_configs_broker", "test_metadata"), "expects a cluster of one broker"
)
"""Test, without its parameters, to the reason why it cannot pass against more than one broker."""

UNCERTAIN_IN_A_CLUSTER = {
    "test_consumer_seek_backward": "counts requests, and there is one to each broker",
    "test_consumer_seek_forward_getmany": "counts requests, and there is one to each broker",
    "test_consumer_seek_forward_getone": "counts requests, and there is one to each broker",
    "test_consumer_seek_to_end": "writes with acks=1 and expects that replicas have it at once",
    "test_manual_subscribe_pattern": "expects one broker's order of topics, of which another test has one",
    "test_max_poll_records": "expects what several brokers have in one poll",
}
"""Test to the reason why it passes only now and then against more than one broker."""


def main() -> int:
    options = Options.read(sys.argv[1:])
    try:
        folder = options.folder("tests", "aiokafka")
    except Unavailable as reason:
        print(f"aiokafka's own tests are not run: {reason}.")
        return 0
    print(f"aiokafka: its tests that want a broker, against {options.subject}", flush=True)
    return run(
        folder,
        # Its own fixtures start Docker, and the folders that are left out have tests without a broker only.
        ["tests", "--noconftest", "-p", "aiokafka_plugin", "--ignore=tests/coordinator", "--ignore=tests/record"]
        + ["-W", "default", *options.arguments],
        brokers=options.brokers,
        settings=_SETTINGS,
        environment=lambda bootstrap: {
            "HEADRACE_BOOTSTRAP": bootstrap.partition(",")[0],
            "HEADRACE_KAFKA_VERSION": _KAFKA_VERSION,
        },
        users={"test": "test"},
        expected_failures=FAILURES_IN_A_CLUSTER if options.brokers > 1 else {},
        uncertain=UNCERTAIN_IN_A_CLUSTER if options.brokers > 1 else {},
    )


if __name__ == "__main__":
    sys.exit(main())
