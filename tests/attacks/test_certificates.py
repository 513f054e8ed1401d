"""Client certificates: expired, of another authority, of no user, of an authority that is trusted no longer."""

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.security.tls.dev_certificates import make_dev_certificates
from headrace.testing import Broker
from tests.interop.raw_client import METADATA, Closed, Error
from tests.waiting import until

from .certificates import client_pem, presenting
from .wire import PASSWORD, Client

RULES = "RULE:^CN=([a-z]+)$/$1/"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    make_dev_certificates(made)
    return made


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("other")
    make_dev_certificates(made)
    return made


def _settings(folder: Path, ca_file: Path | None = None) -> dict[str, object]:
    return {
        "listeners": "tls://127.0.0.1:0?client.auth=required",
        "tls.cert.file": folder / "broker.pem",
        "tls.key.file": folder / "broker-key.pem",
        "tls.ca.file": ca_file or folder / "ca.pem",
        "tls.principal.mapping.rules": RULES,
    }


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    with Broker(settings=_settings(folder)) as running:
        yield running


def _is_served(broker: Broker, context: ssl.SSLContext) -> bool:
    """Whether a client gets an answer; TLS 1.3 tells it only after its handshake that it is refused."""
    try:
        with Client(broker.bootstrap, context) as client:
            return client.call(METADATA, 4, topics=[]).brokers != ()
    except (Closed, OSError):
        return False


def test_a_good_certificate_is_served(broker: Broker, folder: Path, tmp_path: Path) -> None:
    good = client_pem(tmp_path, "alice", authority=folder)
    assert _is_served(broker, presenting(good, trusted=folder / "ca.pem"))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("kind", ["none", "expired", "of another authority", "without a matching rule"])
def test_a_bad_certificate_is_not(
    broker: Broker, folder: Path, other_authority: Path, tmp_path: Path, version: ssl.TLSVersion, kind: str
) -> None:
    bad = {
        "none": lambda: None,
        "expired": lambda: client_pem(tmp_path, "alice", authority=folder, days=-1),
        "of another authority": lambda: client_pem(tmp_path, "alice", authority=other_authority),
        "without a matching rule": lambda: client_pem(tmp_path, "Alice-1", authority=folder),
    }[kind]()
    context = presenting(bad, trusted=folder / "ca.pem")
    context.maximum_version = version
    assert not _is_served(broker, context)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_not_resumed_with_an_expired_certificate(
    broker: Broker, folder: Path, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """A resumed session of TLS 1.2 does not verify the certificate again."""
    expires_s = time.time() + 2
    short = client_pem(tmp_path, "alice", authority=folder, days=2 / 86400)
    context = presenting(short, trusted=folder / "ca.pem")
    context.maximum_version = version
    with Client(broker.bootstrap, context) as client:
        assert client.call(METADATA, 4, topics=[]).brokers
        session = client.raw_socket.session  # type: ignore[attr-defined]
    time.sleep(max(0.0, expires_s - time.time()) + 1.1)
    resumed = _Resuming(context, session)
    assert not _is_served(broker, resumed)  # type: ignore[arg-type]


def test_a_connection_ends_with_its_certificate(broker: Broker, folder: Path, tmp_path: Path) -> None:
    short = client_pem(tmp_path, "alice", authority=folder, days=2 / 86400)
    with (
        Client(broker.bootstrap, presenting(short, trusted=folder / "ca.pem")) as client,
        Client(
            broker.bootstrap, presenting(client_pem(tmp_path, "bob", authority=folder), trusted=folder / "ca.pem")
        ) as other,
    ):
        assert client.call(METADATA, 4, topics=[]).brokers
        assert client.wait_closed(20)
        assert other.call(METADATA, 4, topics=[]).brokers


class _Resuming:
    """A context whose connections resume a session."""

    def __init__(self, context: ssl.SSLContext, session: ssl.SSLSession | None) -> None:
        self._context = context
        self._session = session

    def wrap_socket(self, plain: object, server_hostname: str) -> ssl.SSLSocket:
        return self._context.wrap_socket(
            plain,  # type: ignore[arg-type]
            server_hostname=server_hostname,
            session=self._session,
        )


def test_an_authority_that_is_removed_is_trusted_no_longer(folder: Path, other_authority: Path, tmp_path: Path) -> None:
    ca_file = tmp_path / "trusted.pem"
    both = (folder / "ca.pem").read_bytes() + (other_authority / "ca.pem").read_bytes()
    ca_file.write_bytes(both)
    mine = presenting(client_pem(tmp_path, "alice", authority=folder), trusted=folder / "ca.pem")
    theirs = presenting(client_pem(tmp_path, "bob", authority=other_authority), trusted=folder / "ca.pem")
    with Broker(settings=_settings(folder, ca_file)) as broker:
        assert _is_served(broker, mine)
        assert _is_served(broker, theirs)
        ca_file.write_bytes((folder / "ca.pem").read_bytes())
        until(lambda: not _is_served(broker, theirs), "the removed authority is still trusted", 20)
        assert _is_served(broker, mine)


def test_a_certificate_does_not_replace_the_login(folder: Path, tmp_path: Path) -> None:
    """On a listener with SASL a certificate is no user."""
    settings = _settings(folder) | {"listeners": "sasl_tls://127.0.0.1:0?client.auth=required"}
    good = presenting(client_pem(tmp_path, "alice", authority=folder), trusted=folder / "ca.pem")
    with Broker(users={"alice": PASSWORD}, settings=settings) as broker:
        with Client(broker.bootstrap, good) as client, pytest.raises(Closed):
            client.call(METADATA, 4, topics=[])
        with Client(broker.bootstrap, good) as client:
            assert client.log_in("SCRAM-SHA-256").error_code == Error.none
            assert client.call(METADATA, 4, topics=[]).brokers
