"""A broker with a listener for each way to connect, users and ACLs, as the suites of clients start Apache Kafka."""

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from headrace.security.tls.dev_certificates import make_dev_certificates
from headrace.testing.etcd import free_port

ADMIN = "admin"
MECHANISMS = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
_PREFIX = "SECURED_LISTENER_"
_ITERATIONS = 4096


class SecuredAddresses(NamedTuple):
    """Where a broker listens, and the folder with `ca.crt`, `client.crt` and `client.key`."""

    plain: int
    tls: int
    sasl_plain: int
    sasl_tls: int
    certificates: Path

    @classmethod
    def choose(cls, folder: Path) -> "SecuredAddresses":
        made = make_dev_certificates(folder, clients=["client"])
        (client,) = made.clients
        copies = {"ca.crt": made.ca.cert_file, "client.crt": client.cert_file, "client.key": client.key_file}
        for name, file in copies.items():
            shutil.copy(file, folder / name)
        return cls(free_port(), free_port(), free_port(), free_port(), folder)

    @staticmethod
    def are_in_environment() -> bool:
        return _PREFIX + "PLAIN" in os.environ

    @classmethod
    def from_environment(cls) -> "SecuredAddresses":
        ports = (int(os.environ[_PREFIX + name.upper()]) for name in cls._fields[:-1])
        return cls(*ports, Path(os.environ[_PREFIX + "CERTIFICATES"]))

    @property
    def environment(self) -> dict[str, str]:
        return {_PREFIX + name.upper(): str(value) for name, value in self._asdict().items()}

    @property
    def settings(self) -> dict[str, object]:
        listeners = [
            f"plain://127.0.0.1:{self.plain}",
            f"tls://127.0.0.1:{self.tls}?client.auth=requested",
            f"sasl_plain://127.0.0.1:{self.sasl_plain}",
            f"sasl_tls://127.0.0.1:{self.sasl_tls}",
        ]
        return {
            "listeners": ",".join(listeners),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "tls.cert.file": self.certificates / "broker.pem",
            "tls.key.file": self.certificates / "broker-key.pem",
            "tls.ca.file": self.certificates / "ca.pem",
            "authorization.enable": True,
            "allow.everyone.if.no.acl.found": True,
            "super.users": f"User:{ADMIN}",
        }

    def create_user(self, name: str, password: str) -> None:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.plain}"})
        for mechanism in MECHANISMS:
            credential = ScramCredentialInfo(mechanism, _ITERATIONS)
            wanted = UserScramCredentialUpsertion(name, credential, password.encode())
            admin.alter_user_scram_credentials([wanted])[name].result(30)

    def admin(self) -> AdminClient:
        """A client that may do everything."""
        return AdminClient(
            {
                "bootstrap.servers": f"127.0.0.1:{self.sasl_plain}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": ADMIN,
                "sasl.password": ADMIN,
            }
        )
