"""confluent-kafka-python's own tests of the schema registry, and of its serializers, against a real `headrace serve`.

    python interop/registry_suite.py --checkout <path> [pytest arguments]

The path is that of a checkout of confluent-kafka-python 2.15; its source archive has no tests. The packages that they
need are installed into an environment of their own.
"""

import socket
import sys
from pathlib import Path

from client_suite import Options, Unavailable, run
from environments import environment

_HERE = Path(__file__).resolve().parent

EXPECTED_FAILURES = {
    "test_api_register_schema_incompatible": "expects the error 409 of registries before version 8, not 40901",
}
"""Test, without its parameters, to the reason why it cannot pass."""

UNCERTAIN = {"test_api_get_register_schema_invalid": "expects the error 500 of version 7.0 in one of its cases"}


def main() -> int:
    options = Options.read(sys.argv[1:])
    try:
        folder = options.folder("tests/integration/schema_registry", "confluent-kafka-python")
        python = environment(_HERE / "registry" / "requirements.txt", "registry")
    except Unavailable as reason:
        print(f"confluent-kafka-python's tests of the schema registry are not run: {reason}.")
        return 0
    print("confluent-kafka-python: its tests of the schema registry against headrace serve", flush=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        registry = f"127.0.0.1:{free.getsockname()[1]}"
    return run(
        folder,
        ["tests/integration/schema_registry", "-p", "registry_plugin", "-o", "asyncio_mode=auto", *options.arguments],
        settings={"registry.listen": registry},
        environment=lambda bootstrap: {
            name: value
            for version in ("", "_7_0_1")
            for name, value in ((f"BROKERS{version}", bootstrap), (f"SR_URL{version}", f"http://{registry}"))
        },
        expected_failures=EXPECTED_FAILURES,
        uncertain=UNCERTAIN,
        python=str(python),
    )


if __name__ == "__main__":
    sys.exit(main())
