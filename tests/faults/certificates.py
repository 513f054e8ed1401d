"""Certificates of a running cluster are replaced: by new ones, by damaged ones, by those of another authority."""

import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography import x509

from headrace.security.tls.dev_certificates import make_dev_certificates
from tests.faults.nemesis import Fault, Scene
from tests.faults.testbed import BROKERS, Testbed

RELOADED = "reloaded the TLS files"
DAMAGED = "TLS files have changed and cannot be used, the previous ones stay in use"
_SEEN_WITHIN_S = 60.0


def renew(scene: Scene) -> str:
    """A new key and certificate of the same authority."""
    bed = scene.bed
    _await_logged(bed, RELOADED, lambda: make_dev_certificates(_folder(bed), hosts=bed.hosts, renews=True))
    return _reconnect(scene)


def damage_and_renew(scene: Scene) -> str:
    """Half a certificate, which brokers must refuse, and then a whole one."""
    bed = scene.bed
    file = _folder(bed) / "broker.pem"
    half = file.read_bytes()[: file.stat().st_size // 2]
    _await_logged(bed, DAMAGED, lambda: _replace(file, half))
    file.unlink()
    _await_logged(bed, RELOADED, lambda: make_dev_certificates(_folder(bed), hosts=bed.hosts))
    return _reconnect(scene)


def replace_authority(scene: Scene) -> str:
    """Both authorities are trusted, then certificates are those of the new one, then it alone is trusted.

    At each step a broker is killed, so that it connects to the others, and they to it.
    """
    bed = scene.bed
    folder = _folder(bed)
    new = folder / f"authority-{time.time_ns()}"
    make_dev_certificates(new, hosts=bed.hosts)
    old_ca, new_ca = (folder / "ca.pem").read_bytes(), (new / "ca.pem").read_bytes()
    _await_logged(bed, RELOADED, lambda: _replace(folder / "ca.pem", old_ca + new_ca))
    killed = [_reconnect(scene)]
    _await_logged(bed, RELOADED, lambda: _replace_pair(folder, new))
    killed.append(_reconnect(scene))
    _await_logged(bed, RELOADED, lambda: _replace(folder / "ca.pem", new_ca))
    _replace(folder / "ca-key.pem", (new / "ca-key.pem").read_bytes())
    return ", ".join([*killed, _reconnect(scene)])


FAULTS: Mapping[str, Fault] = {
    "renew certificates": renew,
    "damage and renew certificates": damage_and_renew,
    "replace the authority": replace_authority,
}


def served_serial_number(bed: Testbed, broker_id: int) -> int:
    """That of the certificate with which a broker answers other brokers."""
    address = str(bed.cluster.brokers[broker_id].settings["listeners"]).partition("sasl_tls://")[2].partition("?")[0]
    host, _, port = address.rpartition(":")
    pem = ssl.get_server_certificate((host, int(port)), ca_certs=str(_folder(bed) / "ca.pem"), timeout=30)
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def current_serial_number(bed: Testbed) -> int:
    return x509.load_pem_x509_certificate((_folder(bed) / "broker.pem").read_bytes()).serial_number


def _folder(bed: Testbed) -> Path:
    assert bed.cluster.certificates is not None
    return bed.cluster.certificates


def _replace(file: Path, content: bytes) -> None:
    temporary = file.with_suffix(".new")
    temporary.write_bytes(content)
    temporary.replace(file)


def _replace_pair(folder: Path, new: Path) -> None:
    for name in ("broker-key.pem", "broker.pem"):
        _replace(folder / name, (new / name).read_bytes())


def _await_logged(bed: Testbed, line: str, change: Callable[[], object]) -> None:
    """Make a change, and wait until every broker has logged this line once more."""
    before = _counts(bed, line)
    change()
    end = time.monotonic() + _SEEN_WITHIN_S
    while any(count == before[broker_id] for broker_id, count in _counts(bed, line).items()):
        assert time.monotonic() < end, f"not every broker has logged: {line}\n{bed.cluster.logs()}"
        time.sleep(0.05)


def _counts(bed: Testbed, line: str) -> dict[int, int]:
    return {broker_id: bed.cluster.brokers[broker_id].stderr.count(line) for broker_id in BROKERS}


def _reconnect(scene: Scene) -> str:
    """kill -9 to a broker, which is back before it is missed: all others connect to it again, and it to them."""
    leader, _ = scene.some_leader()
    scene.bed.cluster.kill(leader)
    scene.bed.start_stopped()
    scene.bed.cluster.await_in_sync()
    return f"broker {leader} started again"
