"""Headrace and Apache Kafka with a listener for each way to connect, in one process: plain, TLS, TLS and SCRAM.

The plain listener is for the harness; what comes by it may do everything. Both have the same certificate, and the user
`bench`.
"""

from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from harness.process import free_port
from harness.systems import Headrace, Kafka, System
from headrace.security.tls.dev_certificates import make_dev_certificates

TLS, SCRAM, SCRAM_ONLY = "tls", "scram+tls", "scram"
USER, PASSWORD = "bench", "a password for bench"
_ITERATIONS = 4096
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


class _Secured:
    """The ports and certificates of a system."""

    def __init__(self, folder: Path) -> None:
        self.ports = {listener: free_port() for listener in (TLS, SCRAM, SCRAM_ONLY)}
        self.certificates = make_dev_certificates(folder)

    def address(self, listener: str) -> dict[str, object]:
        where: dict[str, object] = {"port": self.ports[listener]}
        if listener in (TLS, SCRAM):
            where["tls_ca"] = self.certificates.ca.cert_file
        if listener in (SCRAM, SCRAM_ONLY):
            where |= {"user": USER, "password": PASSWORD}
        return where


def _create_user(system: System) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{system.port}", "log_level": 0})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
    wanted = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
    admin.alter_user_scram_credentials([wanted])[USER].result(30)


class SecureHeadrace(Headrace):
    name = "headrace-secure"

    def __init__(self, work_dir: Path, command: list[str] | None = None) -> None:
        super().__init__(work_dir, command)
        self._secured = _Secured(work_dir / f"{self.name}-certificates")

    def start(self) -> None:
        super().start()
        _create_user(self)

    def address(self, listener: str) -> dict[str, object]:
        return self._secured.address(listener) if listener else super().address(listener)

    def _settings(self) -> dict[str, object]:
        ports, made = self._secured.ports, self._secured.certificates
        listeners = [
            f"plain://127.0.0.1:{self.port}",
            f"tls://127.0.0.1:{ports[TLS]}",
            f"sasl_tls://127.0.0.1:{ports[SCRAM]}",
            f"sasl_plain://127.0.0.1:{ports[SCRAM_ONLY]}",
        ]
        return {
            "listeners": ",".join(listeners),
            "tls.cert.file": made.broker.cert_file,
            "tls.key.file": made.broker.key_file,
            "super.users": "User:ANONYMOUS",
        }


class SecureKafka(Kafka):
    name = "kafka-secure"

    def __init__(self, work_dir: Path) -> None:
        super().__init__(work_dir)
        self._secured = _Secured(work_dir / f"{self.name}-certificates")

    def start(self) -> None:
        super().start()
        _create_user(self)

    def address(self, listener: str) -> dict[str, object]:
        return self._secured.address(listener) if listener else super().address(listener)

    def _write_properties(self, path: Path, controller_port: int) -> None:
        super()._write_properties(path, controller_port)
        ports, made = self._secured.ports, self._secured.certificates
        keystore = made.broker.cert_file.with_name("keystore.pem")
        keystore.write_bytes(made.broker.key_file.read_bytes() + made.broker.cert_file.read_bytes())
        named = f"SSL://127.0.0.1:{ports[TLS]},SASL_SSL://127.0.0.1:{ports[SCRAM]}"
        lines = [
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},{named},CONTROLLER://127.0.0.1:{controller_port}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port},{named}",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name=PLAINTEXT",
            "sasl.enabled.mechanisms=SCRAM-SHA-512",
            f"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={_SCRAM_MODULE} required;",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={keystore}",
        ]
        # Of two lines with one name the last counts.
        with path.open("a") as file:
            file.write("\n".join(lines) + "\n")
