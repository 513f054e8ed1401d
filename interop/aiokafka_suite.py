"""aiokafka's own tests that want a broker, against a real `headrace serve` process.

    python interop/aiokafka_suite.py --checkout <path> [pytest arguments]

The path is that of a checkout of aiokafka in the version that is installed; its source archive has no tests.
"""

import sys

from client_suite import Unavailable, checkout, run

_KAFKA_VERSION = "4.1.0"
_SETTINGS = {"num.partitions": 2, "group.initial.rebalance.delay.ms": 0}
"""As the suite starts Apache Kafka."""

EXPECTED_FAILURES: dict[str, str] = {}
"""Test, without its parameters, to the reason why it cannot pass."""


def main() -> int:
    try:
        folder, arguments = checkout(sys.argv[1:], "tests", "aiokafka")
    except Unavailable as reason:
        print(f"aiokafka's own tests are not run: {reason}.")
        return 0
    print("aiokafka: its tests that want a broker, against headrace serve", flush=True)
    return run(
        folder,
        # Its own fixtures start Docker, and the folders that are left out have tests without a broker only.
        ["tests", "--noconftest", "-p", "aiokafka_plugin", "--ignore=tests/coordinator", "--ignore=tests/record"]
        + ["-W", "default", *arguments],
        settings=_SETTINGS,
        environment=lambda bootstrap: {
            "HEADRACE_BOOTSTRAP": bootstrap,
            "HEADRACE_KAFKA_VERSION": _KAFKA_VERSION,
        },
        expected_failures=EXPECTED_FAILURES,
    )


if __name__ == "__main__":
    sys.exit(main())
