import socket
import stat
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from headrace.model.errors import SettingsError
from headrace.security.tls.dev_certificates import make_dev_certificates


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_made(tmp_path):
    made = make_dev_certificates(
        tmp_path / "new" / "certs", hosts=["b1.example.org"], clients=["alice", "bob", "alice"]
    )
    folder = tmp_path / "new" / "certs"
    clients = [f"{name}{end}.pem" for name in ("alice", "bob") for end in ("", "-key", "-keystore")]
    assert set(files(folder)) == {"ca.pem", "ca-key.pem", "broker.pem", "broker-key.pem", *clients}
    for path in folder.iterdir():
        is_secret = b"PRIVATE KEY" in path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 if is_secret else "key" not in path.name
    names = made.broker.certificate.names
    assert {"DNS:localhost", "IP:127.0.0.1", "IP:::1", f"DNS:{socket.gethostname()}", "DNS:b1.example.org"} == set(
        names
    )
    assert made.broker.certificate.expires_in_days() == pytest.approx(825, abs=0.1)
    assert made.ca.certificate.expires_in_days() == pytest.approx(3652, abs=0.1)
    assert [each.certificate.subject for each in made.clients] == ["CN=alice", "CN=bob"]


def test_openssl_accepts_them_by_its_strict_rules(tmp_path):
    made = make_dev_certificates(tmp_path, clients=["alice"])
    for cert, purpose in ((made.broker, "sslserver"), (made.broker, "sslclient"), (made.clients[0], "sslclient")):
        command = ["openssl", "verify", "-x509_strict", "-purpose", purpose]
        command += ["-CAfile", str(made.ca.cert_file), str(cert.cert_file)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


def test_running_again_changes_nothing(tmp_path):
    make_dev_certificates(tmp_path, clients=["alice"])
    before = files(tmp_path)
    made = make_dev_certificates(tmp_path, clients=["alice"])
    assert files(tmp_path) == before
    assert not any(each.is_new for each in (made.ca, made.broker, *made.clients))
    made = make_dev_certificates(tmp_path, clients=["bob"], hosts=["new.example.org", "localhost", "::1"])
    assert made.clients[0].is_new
    assert made.missing_hosts == ("new.example.org",)
    assert {name: files(tmp_path)[name] for name in before} == before


def test_renewing_keeps_the_authority(tmp_path):
    make_dev_certificates(tmp_path, clients=["alice"])
    before = files(tmp_path)
    made = make_dev_certificates(tmp_path, clients=["alice"], hosts=["new.example.org"], renews=True)
    after = files(tmp_path)
    assert {name for name in before if before[name] == after[name]} == {"ca.pem", "ca-key.pem"}
    assert made.missing_hosts == ()


def test_expired_certificates_and_those_of_another_authority_are_replaced(tmp_path):
    past = datetime.now(UTC) - timedelta(days=900)
    make_dev_certificates(tmp_path, now=past)
    assert make_dev_certificates(tmp_path).broker.is_new
    for name in ("ca.pem", "ca-key.pem"):
        (tmp_path / name).unlink()
    made = make_dev_certificates(tmp_path)
    assert made.broker.is_new
    assert made.broker.certificate.issuer == made.ca.certificate.subject


@pytest.mark.parametrize("client", ["", "ca", "broker", "../x", "a/b", "x-key", "x-keystore", ".hidden", "é", "x" * 64])
def test_names_that_cannot_be_files(tmp_path, client):
    with pytest.raises(SettingsError, match="cannot be the name of a client"):
        make_dev_certificates(tmp_path / "certs", clients=[client])
    assert not (tmp_path / "certs").exists()


def test_an_authority_that_cannot_be_used(tmp_path):
    make_dev_certificates(tmp_path)
    (tmp_path / "ca-key.pem").unlink()
    with pytest.raises(SettingsError, match=r"ca-key.pem does not exist"):
        make_dev_certificates(tmp_path)
    make_dev_certificates(tmp_path / "old", now=datetime.now(UTC) - timedelta(days=4000))
    with pytest.raises(SettingsError, match=r"ca.pem expired"):
        make_dev_certificates(tmp_path / "old")


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot write certificates to"):
        make_dev_certificates(tmp_path / "file")
    with pytest.raises(SettingsError, match="is not a host name"):
        make_dev_certificates(tmp_path / "certs", hosts=["é" * 80])
