"""Files that change under a server that runs."""

import asyncio
import logging
import shutil
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from headrace.model.client_auth import ClientAuth
from headrace.model.errors import SettingsError
from headrace.security.tls import reload as reload_module
from headrace.security.tls.context import TlsFiles, client_context
from headrace.security.tls.dev_certificates import make_dev_certificates
from headrace.security.tls.pem_files import read_certificates, read_key
from headrace.security.tls.reload import ReloadingTls
from tests.unit.security.tls.echo import EchoClient, echo_server

LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dev_certificates(tmp_path / "certs", clients=["alice"])
    return tmp_path / "certs"


def broker_files(folder: Path) -> TlsFiles:
    return TlsFiles(folder / "broker.pem", folder / "broker-key.pem", None, folder / "ca.pem")


def client_of(folder: Path, name: str | None = None, ca: Path | None = None) -> ssl.SSLContext:
    cert, key = (folder / f"{name}.pem", folder / f"{name}-key.pem") if name else (None, None)
    return client_context(TlsFiles(cert, key, None, ca or folder / "ca.pem"))


@LOOPS
def test_new_handshakes_see_the_new_certificate_and_old_connections_go_on(folder, run):
    tls = ReloadingTls(broker_files(folder))
    context = client_of(folder)
    with echo_server(tls.server_context(), run) as port, EchoClient(port, context) as old:
        assert not tls.check()
        before = tls.certificate
        make_dev_certificates(folder, renews=True)
        assert tls.check()
        with EchoClient(port, context) as new:
            assert new.serial != old.serial
            assert tls.certificate is not None
            assert before is not None
            assert int(new.serial, 16) == int(tls.certificate.serial, 16) != int(before.serial, 16)
            assert new.echo("new") == "new"
        assert old.echo("old") == "old"
    assert (tls.reloads, tls.failed_reloads, tls.last_error) == (1, 0, None)


def test_a_key_of_another_type_replaces_the_old_one(folder):
    """On one and the same SSL context, OpenSSL would go on to offer the old certificate beside the new one."""
    tls = ReloadingTls(broker_files(folder))
    with echo_server(tls.server_context()) as port:
        _to_rsa(folder)
        assert tls.check()
        context = client_of(folder)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with EchoClient(port, context) as client:
            assert "ECDHE-RSA" in (client.socket.cipher() or ("",))[0]
        context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        with pytest.raises(ssl.SSLError, match="handshake failure"):
            EchoClient(port, context)


def _to_rsa(folder: Path) -> None:
    old = read_certificates(folder / "broker.pem")[0]
    ca_key = read_key(folder / "ca-key.pem", None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = rsa.generate_private_key(65537, 2048)
    builder = x509.CertificateBuilder(
        old.issuer,
        old.subject,
        key.public_key(),
        x509.random_serial_number(),
        old.not_valid_before_utc,
        old.not_valid_after_utc,
    )
    names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    signed = builder.add_extension(names, critical=False).sign(ca_key, hashes.SHA256())
    (folder / "broker-key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
    (folder / "broker.pem").write_bytes(signed.public_bytes(Encoding.PEM))


@LOOPS
def test_the_authorities_for_clients_are_replaced(folder, tmp_path, run):
    make_dev_certificates(tmp_path / "other", clients=["bob"])
    tls = ReloadingTls(broker_files(folder))
    trusted = folder / "trusted.pem"
    shutil.copy(folder / "ca.pem", trusted)
    alice, bob = client_of(folder, "alice", trusted), client_of(tmp_path / "other", "bob", trusted)
    with echo_server(tls.server_context(ClientAuth.REQUIRED), run) as port:
        with EchoClient(port, alice) as client:
            assert client.who == "known"
        with pytest.raises(ssl.SSLError, match="unknown ca"):
            EchoClient(port, bob)
        shutil.copy(tmp_path / "other" / "ca.pem", folder / "ca.pem")
        assert tls.check()
        with EchoClient(port, bob) as client:
            assert client.who == "known"
        with pytest.raises(ssl.SSLError, match="unknown ca"):
            EchoClient(port, alice)
        assert sum(tls.failed_handshakes.values()) == 2
        assert all(reason.startswith("certificate verify failed: ") for reason in tls.failed_handshakes)


def test_a_session_is_not_resumed_after_the_authorities_changed(folder, tmp_path):
    """A resumed session does not verify the client's certificate again."""
    make_dev_certificates(tmp_path / "other")
    tls = ReloadingTls(broker_files(folder))
    trusted = folder / "trusted.pem"
    shutil.copy(folder / "ca.pem", trusted)
    alice = client_of(folder, "alice", trusted)
    alice.maximum_version = ssl.TLSVersion.TLSv1_2
    with echo_server(tls.server_context(ClientAuth.REQUIRED)) as port:
        with EchoClient(port, alice) as client:
            session = client.socket.session
        assert session is not None
        shutil.copy(tmp_path / "other" / "ca.pem", folder / "ca.pem")
        assert tls.check()
        with pytest.raises(ssl.SSLError, match="unknown ca"):
            EchoClient(port, alice, session=session)


def test_files_that_cannot_be_used_leave_the_old_ones_in_use(folder, caplog):
    tls = ReloadingTls(broker_files(folder))
    context = client_of(folder)
    whole = (folder / "broker.pem").read_bytes()
    with echo_server(tls.server_context()) as port, caplog.at_level(logging.INFO, "headrace"):
        for broken in (b"", whole[:100], b"no certificate at all"):
            (folder / "broker.pem").write_bytes(broken)
            assert not tls.check()
            assert not tls.check()
            with EchoClient(port, context) as client:
                assert client.echo("still here") == "still here"
        assert tls.failed_reloads == len(caplog.records) == 3
        assert "the previous ones stay in use" in caplog.text
        assert "broker.pem has no certificate" in (tls.last_error or "")
        (folder / "broker.pem").unlink()
        assert not tls.check()
        assert "does not exist" in (tls.last_error or "")
        (folder / "broker.pem").write_bytes(whole)
        assert tls.check()
    assert tls.last_error is None


def test_a_pair_that_is_half_replaced_is_used_when_it_is_whole(folder, tmp_path):
    tls = ReloadingTls(broker_files(folder))
    context = client_of(folder)
    new = tmp_path / "new"
    shutil.copytree(folder, new)
    make_dev_certificates(new, renews=True)
    with echo_server(tls.server_context()) as port:
        with EchoClient(port, context) as client:
            before = client.serial
        shutil.copy(new / "broker.pem", folder / "broker.pem")
        assert not tls.check()
        assert "does not belong to the certificate" in (tls.last_error or "")
        with EchoClient(port, context) as client:
            assert client.serial == before
        shutil.copy(new / "broker-key.pem", folder / "broker-key.pem")
        assert tls.check()
        with EchoClient(port, context) as client:
            assert client.serial != before


def test_a_folder_that_is_swapped_by_its_link(folder, tmp_path):
    """Kubernetes mounts files as links through `..data`, a link to a folder that it replaces."""
    mounted, new = tmp_path / "mounted", tmp_path / "new"
    mounted.mkdir()
    (mounted / "..data").symlink_to(folder)
    for name in ("broker.pem", "broker-key.pem", "ca.pem"):
        (mounted / name).symlink_to(Path("..data") / name)
    shutil.copytree(folder, new)
    make_dev_certificates(new, renews=True)
    tls = ReloadingTls(broker_files(mounted))
    with echo_server(tls.server_context()) as port:
        (mounted / "..data_tmp").symlink_to(new)
        (mounted / "..data_tmp").rename(mounted / "..data")
        assert tls.check()
        with EchoClient(port, client_of(folder)) as client:
            assert int(client.serial, 16) == read_certificates(new / "broker.pem")[0].serial_number


@LOOPS
def test_a_client_uses_the_new_files_too(folder, tmp_path, run):
    """As brokers do when they connect to each other with certificates."""
    make_dev_certificates(tmp_path / "other")
    server = ReloadingTls(broker_files(folder))
    files = TlsFiles(folder / "alice.pem", folder / "alice-key.pem", None, tmp_path / "trusted.pem")
    shutil.copy(tmp_path / "other" / "ca.pem", tmp_path / "trusted.pem")
    client = ReloadingTls(files)
    context = client.client_context()

    async def who(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return line

    with echo_server(server.server_context(ClientAuth.REQUIRED)) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            run(who(port))
        shutil.copy(folder / "ca.pem", tmp_path / "trusted.pem")
        assert client.check()
        assert run(who(port)) == b"known\n"


def test_watching_reloads_by_itself(folder, caplog):
    tls = ReloadingTls(broker_files(folder))

    async def main() -> None:
        loop, reloaded = asyncio.get_running_loop(), asyncio.Event()
        task = asyncio.create_task(tls.watch(every_s=0.01))
        handler = logging.Handler()
        handler.emit = lambda record: loop.call_soon_threadsafe(reloaded.set)  # type: ignore[method-assign,assignment]
        reload_module.log.addHandler(handler)
        try:
            with caplog.at_level(logging.INFO, "headrace"):
                make_dev_certificates(folder, renews=True)
                async with asyncio.timeout(30):
                    while not tls.reloads:
                        await reloaded.wait()
                        reloaded.clear()
        finally:
            reload_module.log.removeHandler(handler)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert "reloaded the TLS files" in caplog.text


def test_expiry_is_announced_once_a_day(folder, caplog):
    now = datetime.now(UTC)
    tls = ReloadingTls(broker_files(folder), now=lambda: now)
    assert tls.certificate is not None
    ends = tls.certificate.not_after
    with caplog.at_level(logging.INFO, "headrace"):
        tls.check()
        now = ends - timedelta(days=31)
        tls.check()
        assert not caplog.records
        now = ends - timedelta(days=29, hours=12)
        tls.check()
        now += timedelta(hours=23)
        tls.check()
        assert len(caplog.records) == 1
        assert "expires in 29 days" in caplog.text
        now += timedelta(hours=2)
        tls.check()
        assert len(caplog.records) == 2
        now = ends + timedelta(days=1, hours=1)
        tls.check()
        assert (caplog.records[-1].levelname, "expired at" in caplog.text) == ("ERROR", True)
    assert tls.expires_in_days == pytest.approx(-1, abs=0.1)
    assert tls.certificate.expires_at_s == ends.timestamp()


def test_without_a_certificate_there_is_no_expiry(folder):
    tls = ReloadingTls(TlsFiles(ca_file=folder / "ca.pem"))
    assert tls.expires_in_days is None
    assert not tls.check()


def test_files_that_cannot_be_used_at_the_start_are_errors(tmp_path):
    with pytest.raises(SettingsError, match="does not exist"):
        ReloadingTls(broker_files(tmp_path))
