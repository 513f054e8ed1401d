"""kafka-python's own integration tests against a real `headrace serve` process.

    python interop/kafka_python_suite.py [--brokers 3] [pytest arguments]

The tests come from the source archive of the installed version, which pip downloads into `.cache/` and which is not
part of this project. One line for each test, a summary, and an exit code of 1 if a test failed that is not expected to.
"""

import importlib.metadata
import subprocess
import sys
import tarfile
from pathlib import Path

from client_suite import Options, Unavailable, run

_CACHE = Path(__file__).resolve().parent.parent / ".cache"
_KAFKA_VERSION = "4.3.0"
"""What the suite infers from the versions that a broker of Headrace advertises."""
_OF_SECURITY = ("test/integration/test_sasl_integration.py", "test/integration/test_ssl_integration.py")

_SETTINGS = {"group.min.session.timeout.ms": 1000, "group.initial.rebalance.delay.ms": 0}
"""As the suite starts Apache Kafka."""

EXPECTED_FAILURES = {
    "test_describe_metadata_quorum": "there is no KRaft quorum: metadata is in a store of its own",
}
"""Test, without its parameters, to the reason why it cannot pass."""

FAILURES_IN_A_CLUSTER = {"test_create_describe_delete_acls": "ACLs are on for a single broker only"}

UNCERTAIN_IN_A_CLUSTER = {
    "test_alter_replica_log_dirs": "expects that the first broker has a replica of a topic that has one",
    "test_delete_records": "expects what several brokers have in one poll",
}

# The archive lacks the helper that the suite starts brokers with. Against a broker that runs, this much of it is used.
_SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass

    def dump_logs(self):
        pass

    def wait_for(self, pattern, timeout=30):
        pass


class SpawnedService:
    pass
"""


def suite() -> Path:
    """The folder of the unpacked archive."""
    version = importlib.metadata.version("kafka-python")
    folder = _CACHE / f"kafka_python-{version}"
    if not (folder / "test" / "service.py").exists():
        _CACHE.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", "kafka-python", "--dest", str(_CACHE), f"kafka-python=={version}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        archive = folder.with_name(folder.name + ".tar.gz")
        if not archive.exists():
            raise Unavailable(f"pip cannot download the source of kafka-python {version}: {done.stderr.strip()[-200:]}")
        with tarfile.open(archive) as opened:
            opened.extractall(_CACHE, filter="data")
        (folder / "test" / "__init__.py").touch()
        (folder / "test" / "service.py").write_text(_SERVICE)
    return folder


def main() -> int:
    options = Options.read(sys.argv[1:])
    try:
        folder = suite()
    except Unavailable as reason:
        print(f"kafka-python's own tests are not run: {reason}.")
        return 0
    print(f"{folder.name}: its integration tests against {options.subject}", flush=True)
    environment = {"KAFKA_VERSION": _KAFKA_VERSION, "KAFKA_ROOT": str(folder)}
    users = {"alice": "alice-secret"}
    failed = run(
        folder,
        ["test/integration", *(f"--ignore={file}" for file in _OF_SECURITY), *options.arguments],
        brokers=options.brokers,
        settings=_SETTINGS,
        environment=lambda bootstrap: {**environment, "KAFKA_URI": f"kafka://{bootstrap.partition(',')[0]}"},
        expected_failures=EXPECTED_FAILURES if options.brokers == 1 else {**EXPECTED_FAILURES, **FAILURES_IN_A_CLUSTER},
        uncertain=UNCERTAIN_IN_A_CLUSTER if options.brokers > 1 else {},
        users=users,
    )
    if options.brokers > 1 or options.arguments:
        return failed
    print(f"{folder.name}: its tests of TLS and SASL", flush=True)
    return failed | run(
        folder,
        [*_OF_SECURITY, "-p", "kafka_python_plugin"],
        settings=_SETTINGS,
        environment=lambda _: environment,
        expected_failures={},
        users=users,
    )


if __name__ == "__main__":
    sys.exit(main())
