"""`headrace cert dev` and `headrace cert show`."""

import json
import socket
import threading

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.errors import CommandFailed
from headrace.cli.main import app
from headrace.model.errors import SettingsError
from headrace.security.tls.context import TlsFiles, server_context
from headrace.security.tls.dev_certificates import make_dev_certificates
from tests.unit.security.tls.echo import echo_server


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["cert", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def test_making_certificates_says_where_to_set_them(tmp_path):
    text = run("dev", "--dir", tmp_path, "--client", "alice", "--client", "bob").output
    for expected in (
        f'tls.cert.file = "{tmp_path}/broker.pem"',
        f'tls.ca.file = "{tmp_path}/ca.pem"',
        f"ssl.keystore.location={tmp_path}/alice-keystore.pem",
        f"ssl.ca.location={tmp_path}/ca.pem",
        f"ssl.certificate.location={tmp_path}/bob.pem",
        f'context.load_cert_chain("{tmp_path}/bob.pem", "{tmp_path}/bob-key.pem")',
    ):
        assert expected in text
    again = run("dev", "--dir", tmp_path, "--host", "other.example.org")
    assert "made" not in again.stdout
    assert "is not valid for other.example.org; --renew replaces it" in again.stderr


def test_making_certificates_for_programs(tmp_path):
    made = json.loads(run("dev", "--dir", tmp_path, "--client", "alice", "--json").stdout)
    assert [(each["name"], each["is_new"]) for each in made] == [("ca", True), ("broker", True), ("alice", True)]
    assert made[2]["keystore_file"] == f"{tmp_path}/alice-keystore.pem"
    made = json.loads(run("dev", "--dir", tmp_path, "--renew", "--json").stdout)
    assert [(each["name"], each["is_new"]) for each in made] == [("ca", False), ("broker", True)]


def test_showing_a_file(tmp_path):
    made, other = make_dev_certificates(tmp_path / "a"), make_dev_certificates(tmp_path / "b")
    text = run("show", made.broker.cert_file).output
    assert "subject     CN=broker" in text
    assert "DNS:localhost, IP:127.0.0.1, IP:::1" in text
    assert "(in 825 days)" in text
    assert "trusted" not in text
    assert "trusted     yes" in run("show", made.broker.cert_file, "--ca", made.ca.cert_file).output
    text = run("show", made.broker.cert_file, "--ca", other.ca.cert_file, code=1).output
    assert "trusted     no: the issuer of CN=broker" in text
    chain = tmp_path / "chain.pem"
    chain.write_bytes(made.broker.cert_file.read_bytes() + made.ca.cert_file.read_bytes())
    shown = json.loads(run("show", chain, "--json", "--ca", made.ca.cert_file).stdout)
    assert shown["subject"] == "CN=broker"
    assert shown["chain"] == [made.ca.certificate.subject]
    assert shown["is_trusted"] is True


def test_showing_a_port(tmp_path):
    made, other = make_dev_certificates(tmp_path / "a"), make_dev_certificates(tmp_path / "b")
    with echo_server(server_context(TlsFiles(made.broker.cert_file, made.broker.key_file))) as port:
        text = run("show", f"localhost:{port}", "--ca", made.ca.cert_file).output
        assert "subject     CN=broker" in text
        assert "connection  TLSv1.3" in text
        assert "trusted     yes" in text
        shown = json.loads(run("show", f"127.0.0.1:{port}", "--json").stdout)
        assert (shown["serial"], shown["is_trusted"]) == (made.broker.certificate.serial, None)
        shown = json.loads(run("show", f"127.0.0.1:{port}", "--json", "--ca", other.ca.cert_file, code=1).stdout)
        assert shown["is_trusted"] is False
        assert "unable to get local issuer certificate" in shown["reason"]


def test_what_cannot_be_shown(tmp_path):
    with pytest.raises(SettingsError, match=r"there is no file nothing.pem, and the address"):
        run("show", "nothing.pem")
    with pytest.raises(SettingsError, match=r"nothing.pem does not exist"):
        run("show", tmp_path / "nothing.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(4096)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(CommandFailed, match="does not complete a TLS handshake: it does not speak TLS"):
            run("show", f"127.0.0.1:{port}")
        thread.join(30)
    with pytest.raises(CommandFailed, match="cannot be reached"):
        run("show", f"127.0.0.1:{port}")
