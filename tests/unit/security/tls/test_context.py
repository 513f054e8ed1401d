"""Handshakes over loopback, and what is said of files that cannot be used."""

import asyncio
import os
import socket
import ssl
import warnings
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvloop
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from headrace.model.client_auth import ClientAuth
from headrace.model.errors import SettingsError
from headrace.security.tls.context import ALPN_HTTP, TlsFiles, client_context, server_context
from headrace.security.tls.dev_certificates import DevCertificates, make_dev_certificates
from headrace.security.tls.pem_files import read_key
from tests.unit.security.tls.echo import TIMEOUT_S, EchoClient, echo_server

LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> DevCertificates:
    return make_dev_certificates(tmp_path_factory.mktemp("certs"), clients=["alice"])


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> DevCertificates:
    """Certificates of an authority that the first knows nothing of."""
    return make_dev_certificates(tmp_path_factory.mktemp("other"), clients=["mallory"])


def broker_files(made: DevCertificates, **changes: object) -> TlsFiles:
    files = {"cert_file": made.broker.cert_file, "key_file": made.broker.key_file, "ca_file": made.ca.cert_file}
    return TlsFiles(**{**files, **changes})  # type: ignore[arg-type]


def client_of(made: DevCertificates, name: str | None = None, ca: DevCertificates | None = None) -> ssl.SSLContext:
    files = TlsFiles(ca_file=(ca or made).ca.cert_file)
    for each in made.clients:
        if each.name == name:
            files = replace(files, cert_file=each.cert_file, key_file=each.key_file)
    return client_context(files)


@LOOPS
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_is_served_with_both_versions(made, run, version):
    context = client_of(made)
    context.minimum_version = context.maximum_version = version
    with echo_server(server_context(broker_files(made)), run) as port, EchoClient(port, context) as client:
        assert client.socket.version() == version.name.replace("_", ".")
        assert client.echo("hello") == "hello"
        assert client.socket.compression() is None


def test_a_client_with_1_1_is_refused_by_the_server(made):
    context = client_of(made)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with (
        echo_server(server_context(broker_files(made))) as port,
        pytest.raises(ssl.SSLError, match="alert protocol version"),
    ):
        EchoClient(port, context)


def test_a_client_with_1_2_is_refused_where_1_3_is_the_least(made):
    context = client_of(made)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        echo_server(server_context(broker_files(made, min_version="1.3"))) as port,
        pytest.raises(ssl.SSLError, match="alert protocol version"),
    ):
        EchoClient(port, context)


def test_a_cipher_without_forward_secrecy_is_refused(made):
    context = client_of(made)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-SHA:AES256-GCM-SHA384")
    with (
        echo_server(server_context(broker_files(made))) as port,
        pytest.raises(ssl.SSLError, match="handshake failure"),
    ):
        EchoClient(port, context)


@LOOPS
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("client_auth", "name", "who"),
    [
        (ClientAuth.NONE, None, "anonymous"),
        (ClientAuth.NONE, "alice", "anonymous"),
        (ClientAuth.REQUESTED, None, "anonymous"),
        (ClientAuth.REQUESTED, "alice", "known"),
        (ClientAuth.REQUIRED, "alice", "known"),
        (ClientAuth.REQUIRED, None, None),
    ],
)
def test_client_certificates(made, run, version, client_auth, name, who):
    context = client_of(made, name)
    context.maximum_version = version
    with echo_server(server_context(broker_files(made), client_auth), run) as port:
        if who is None:
            with pytest.raises(ssl.SSLError, match=r"certificate required|handshake failure"):
                EchoClient(port, context)
        else:
            with EchoClient(port, context) as client:
                assert client.who == who


@pytest.mark.parametrize("client_auth", [ClientAuth.REQUESTED, ClientAuth.REQUIRED])
def test_a_client_certificate_of_another_authority_is_refused(made, other, client_auth):
    with (
        echo_server(server_context(broker_files(made), client_auth)) as port,
        pytest.raises(ssl.SSLError, match="unknown ca"),
    ):
        EchoClient(port, client_of(other, "mallory", ca=made))


@pytest.mark.parametrize("client_auth", [ClientAuth.REQUESTED, ClientAuth.REQUIRED])
def test_an_expired_client_certificate_is_refused(tmp_path, client_auth):
    past = datetime.now(UTC) - timedelta(days=1000)
    expired = make_dev_certificates(tmp_path, clients=["alice"], now=past)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(expired.ca.cert_file)
    context.load_cert_chain(expired.clients[0].cert_file, expired.clients[0].key_file)
    current = make_dev_certificates(tmp_path)
    assert current.broker.is_new
    with (
        echo_server(server_context(broker_files(current), client_auth)) as port,
        pytest.raises(ssl.SSLError, match="certificate expired"),
    ):
        EchoClient(port, context)


@LOOPS
def test_a_client_that_ignores_the_alert_is_disconnected(made, run):
    failures: list[str] = []
    context = server_context(broker_files(made), on_failure=failures.append)
    with echo_server(context, run) as port, socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as plain:
        plain.sendall(b"\x16\x03\x01\x00\x04\x01\x00\x00\x00")
        assert plain.recv(1024)[:1] == b"\x15"
        plain.settimeout(0.05)
        with suppress(ConnectionError):
            while True:
                plain.sendall(b"more")
                with suppress(TimeoutError):
                    if not plain.recv(1024):
                        break
    assert len(failures) == 1


@LOOPS
def test_a_client_without_tls_is_disconnected_at_once(made, run):
    failures: list[str] = []
    context = server_context(broker_files(made), on_failure=failures.append)
    with echo_server(context, run) as port, socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as plain:
        plain.sendall(b"\0\0\0\x10\0\x12\0\0 Kafka without TLS")
        with suppress(ConnectionError):
            assert plain.recv(1024) == b""
    assert failures == ["wrong version number"]


def test_a_client_verifies_the_authority_and_the_host(made, other):
    with echo_server(server_context(broker_files(made))) as port:
        with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
            EchoClient(port, client_of(other))
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            EchoClient(port, client_of(made), host="elsewhere.example.org")
        files = TlsFiles(ca_file=made.ca.cert_file)
        with EchoClient(port, client_context(files, verifies_host=False), host="elsewhere.example.org") as client:
            assert client.echo("trusted") == "trusted"
        with pytest.raises(ssl.SSLCertVerificationError):
            EchoClient(port, client_context(TlsFiles()))
        with EchoClient(port, client_context(TlsFiles(), verifies=False)) as client:
            assert client.echo("unverified") == "unverified"


@pytest.mark.parametrize("client_auth", list(ClientAuth))
def test_tls_1_3_sessions_are_resumed_only_without_client_certificates(made, client_auth):
    context = client_of(made, "alice")
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with echo_server(server_context(broker_files(made), client_auth)) as port:
        with EchoClient(port, context) as client:
            client.echo("the ticket comes with the first data")
            session = client.socket.session
        with EchoClient(port, context, session=session) as client:
            assert client.socket.session_reused is (client_auth is ClientAuth.NONE)


def test_http_is_negotiated(made):
    context = client_of(made)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with echo_server(server_context(broker_files(made), alpn=ALPN_HTTP)) as port, EchoClient(port, context) as client:
        assert client.socket.selected_alpn_protocol() == "http/1.1"


# -- files


def test_an_encrypted_key(made, tmp_path):
    key = read_key(made.broker.key_file, None)
    encrypted = tmp_path / "key.pem"
    encrypted.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    files = broker_files(made, key_file=encrypted, key_password="secret")
    assert "secret" not in repr(files)
    with echo_server(server_context(files)) as port, EchoClient(port, client_of(made)) as client:
        assert client.echo("hello") == "hello"
    with pytest.raises(SettingsError, match=r"is encrypted: set tls.key.password"):
        server_context(broker_files(made, key_file=encrypted))
    with pytest.raises(SettingsError, match=r"cannot be decrypted: is tls.key.password right"):
        server_context(broker_files(made, key_file=encrypted, key_password="wrong"))


def test_an_encrypted_key_of_openssls_older_form(made, tmp_path):
    key = read_key(made.broker.key_file, None)
    encrypted = tmp_path / "key.pem"
    form = (Encoding.PEM, PrivateFormat.TraditionalOpenSSL)
    encrypted.write_bytes(key.private_bytes(*form, BestAvailableEncryption(b"secret")))
    with pytest.raises(SettingsError, match="is encrypted"):
        server_context(broker_files(made, key_file=encrypted))
    server_context(broker_files(made, key_file=encrypted, key_password="secret"))


def test_a_password_for_a_key_without_one_is_no_error(made):
    server_context(broker_files(made, key_password="not needed"))


def test_key_and_certificate_in_one_file(made):
    server_context(TlsFiles(cert_file=made.clients[0].keystore_file))


def test_files_that_cannot_be_used(made, other, tmp_path):
    empty, damaged, bad_key = tmp_path / "empty.pem", tmp_path / "damaged.pem", tmp_path / "bad-key.pem"
    empty.write_text("")
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    bad_key.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    cases = [
        (TlsFiles(), "needs a certificate: set tls.cert.file"),
        (broker_files(made, cert_file=tmp_path / "none.pem"), "none.pem does not exist"),
        (broker_files(made, key_file=tmp_path / "none.pem"), "none.pem does not exist"),
        (broker_files(made, cert_file=tmp_path), "cannot be read: Is a directory"),
        (broker_files(made, cert_file=empty), "empty.pem has no certificate: no PEM block"),
        (broker_files(made, cert_file=made.broker.key_file), "has no certificate: it has a private key"),
        (broker_files(made, cert_file=damaged), "damaged.pem has a damaged certificate"),
        (broker_files(made, key_file=empty), "empty.pem has no private key"),
        (broker_files(made, key_file=bad_key), "the private key in .*bad-key.pem cannot be read"),
        (broker_files(made, key_file=other.broker.key_file), "does not belong to the certificate"),
        (broker_files(made, min_version="1.1"), "tls.min.version is '1.1': it must be one of 1.2, 1.3"),
    ]
    for files, words in cases:
        with pytest.raises(SettingsError, match=words):
            server_context(files)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(made, tmp_path):
    locked = tmp_path / "locked.pem"
    locked.write_bytes(made.broker.key_file.read_bytes())
    locked.chmod(0)
    with pytest.raises(SettingsError, match=r"locked.pem cannot be read: Permission denied"):
        server_context(broker_files(made, key_file=locked))


def test_a_certificate_outside_of_its_validity(tmp_path):
    now = datetime.now(UTC)
    expired = make_dev_certificates(tmp_path / "expired", now=now - timedelta(days=900))
    with pytest.raises(SettingsError, match=r"expired at \d{4}-\d\d-\d\d \d\d:\d\d UTC: renew it"):
        server_context(broker_files(expired))
    early = make_dev_certificates(tmp_path / "early", now=now + timedelta(days=1))
    with pytest.raises(SettingsError, match=r"is not valid before .* clock"):
        server_context(broker_files(early))


def test_client_certificates_need_authorities(made, tmp_path):
    with pytest.raises(SettingsError, match=r"tls.client.auth=required needs .* set tls.ca.file"):
        server_context(broker_files(made, ca_file=None), ClientAuth.REQUIRED)
    with pytest.raises(SettingsError, match="has no certificate"):
        server_context(broker_files(made, ca_file=made.broker.key_file), ClientAuth.REQUESTED)
    with pytest.raises(SettingsError, match="does not exist"):
        client_context(TlsFiles(ca_file=Path(tmp_path / "none.pem")))
