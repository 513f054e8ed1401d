"""KafkaJS against a real `headrace serve` process.

    python interop/kafkajs/run.py

npm fetches KafkaJS and its codecs into `node_modules/` beside this file the first time. Without node or npm it says so
and ends well.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

# For the broker with users, and the token provider of the tests.
sys.path.insert(1, str(Path(__file__).resolve().parents[1]))
sys.path.insert(2, str(Path(__file__).resolve().parents[2]))

from secured_broker import ADMIN, SecuredAddresses
from tests.interop.oidc import running_oidc_provider

from headrace.testing.process import BrokerProcess

_HERE = Path(__file__).resolve().parent
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Nobody needs to wait for more members of a group that has one.
_USER, _PASSWORD, _SECRET = "alice", "correct horse", "battery staple"
_SETTINGS = {"group.initial.rebalance.delay.ms": 0}


def write_from_python(bootstrap: str) -> None:
    """A topic for each codec, for KafkaJS to read."""
    for codec in _CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
        for number in range(20):
            producer.produce(f"from-python-{codec}", f"{codec}-{number}", partition=0)
        if producer.flush(30):
            raise SystemExit(f"confluent-kafka could not write with {codec}")


def install() -> str | None:
    """Why KafkaJS cannot be had, or None when it is there."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node or npm is not installed"
    if (_HERE / "node_modules" / "kafkajs").is_dir():
        return None
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=_HERE, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"npm cannot install it: {done.stderr.strip()[-200:]}"


def main() -> int:
    reason = install()
    if reason is not None:
        print(f"KafkaJS is not checked: {reason}.")
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="headrace-kafkajs-") as scratch,
        BrokerProcess(Path(scratch) / "data", settings=_SETTINGS) as broker,
    ):
        write_from_python(broker.bootstrap)
        failed = run_tests("client.test.js", {"BOOTSTRAP": broker.bootstrap})
    return failed or check_security()


def run_tests(file: str, environment: dict[str, str]) -> int:
    command = ["node", "--test", "--test-reporter=spec", file]
    environment = {**os.environ, **environment, "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    return subprocess.run(command, cwd=_HERE, env=environment, check=False).returncode


def check_security() -> int:
    """Over TLS, as a user with permissions on topics and groups whose names begin with `secured`."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-kafkajs-") as scratch,
        running_oidc_provider({_USER: _SECRET}) as provider,
    ):
        addresses = SecuredAddresses.choose(Path(scratch) / "certificates")
        settings = {
            **_SETTINGS,
            **addresses.settings,
            **provider.broker_settings,
            "allow.everyone.if.no.acl.found": False,
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        }
        with BrokerProcess(Path(scratch) / "data", port=addresses.plain, settings=settings):
            for name, password in ((ADMIN, ADMIN), (_USER, _PASSWORD)):
                addresses.create_user(name, password)
            admin = addresses.admin()
            for created in admin.create_acls(_acls()).values():
                created.result(30)
            environment = {
                "CERTIFICATES": str(addresses.certificates),
                "SASL_TLS": f"localhost:{addresses.sasl_tls}",
                "TLS": f"localhost:{addresses.tls}",
                "TOKEN_URL": provider.token_url,
                "USER": _USER,
                "PASSWORD": _PASSWORD,
                "SECRET": _SECRET,
            }
            return run_tests("secure.test.js", environment)


def _acls() -> list[AclBinding]:
    prefixed, allow = ResourcePatternType.PREFIXED, AclPermissionType.ALLOW
    return [
        AclBinding(kind, "secured", prefixed, f"User:{name}", "*", AclOperation.ALL, allow)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
        for name in (_USER, "CN=client")
    ]


if __name__ == "__main__":
    sys.exit(main())
