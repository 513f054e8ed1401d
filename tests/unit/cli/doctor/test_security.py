"""What the doctor says of TLS, logins and permissions, against real brokers."""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.cli.doctor.findings import CheckStatus, Finding
from headrace.cli.doctor.run import diagnose
from headrace.config.client_connection import VARIABLES
from headrace.security.tls.dev_certificates import DevCertificates, make_dev_certificates
from headrace.testing import Broker
from headrace.wire import Cluster, Credentials

from .test_run import server

PASSWORD = "planted"
_TIMEOUT_S = 20.0


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES.values():
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "authorization.enable": True,
        "super.users": "User:root",
    }
    with Broker(tls=True, users={"root": PASSWORD, "alice": PASSWORD}, settings=settings) as one:
        root = Credentials(user="root", password=PASSWORD, ca_file=str(one.ca_file))
        with Cluster(one.bootstrap, credentials=root) as cluster:
            cluster.create_topic("orders", partitions=1)
        yield one


@pytest.fixture(scope="module")
def plain() -> Iterator[Broker]:
    with Broker() as one:
        yield one


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> DevCertificates:
    return make_dev_certificates(tmp_path_factory.mktemp("certificates"), clients=["bob"])


def use(monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    for name, value in fields.items():
        monkeypatch.setenv(VARIABLES[name], str(value))


def found(bootstrap: str, **options: str) -> list[Finding]:
    findings = list(diagnose(bootstrap, _TIMEOUT_S, **options))
    assert PASSWORD not in repr(findings)
    return findings


def the_problem(bootstrap: str, **options: str) -> tuple[str, str]:
    (one,) = [each for each in found(bootstrap, **options) if each.status is CheckStatus.PROBLEM]
    return one.what, one.advice or ""


def test_everything_fits(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, user="root", password=PASSWORD, ca_file=broker.ca_file)
    findings = found(broker.bootstrap, topic="orders", group="billing")
    assert {each.status for each in findings} == {CheckStatus.OK}
    text = "\n".join(each.what for each in findings)
    assert "TLS works (TLSv1.3), and the certificate CN=broker" in text
    assert "The login of the user root with SCRAM-SHA-512 succeeds" in text
    assert "root may read, write" in text
    assert "root may use the group billing" in text


def test_plain_to_a_port_with_tls(broker: Broker) -> None:
    what, advice = the_problem(broker.bootstrap)
    assert "a TLS server" in what
    assert "HEADRACE_CA_FILE" in advice


def test_tls_to_a_plain_port(plain: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tls="true")
    what, advice = the_problem(plain.bootstrap)
    assert "expects no TLS" in what
    assert "HEADRACE_TLS" in advice


def test_another_authority(broker: Broker, certificates: DevCertificates, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, user="root", password=PASSWORD, ca_file=certificates.ca.cert_file)
    what, advice = the_problem(broker.bootstrap)
    assert "was issued by CN=Headrace development CA" in what
    assert f"which is not in {certificates.ca.cert_file}" in what
    assert "HEADRACE_CA_FILE" in advice


def test_the_systems_authorities(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, user="root", password=PASSWORD, tls="true")
    assert "which the system does not trust" in the_problem(broker.bootstrap)[0]


def test_another_name(certificates: DevCertificates, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "listeners": "tls://127.0.0.2:0",
        "tls.cert.file": certificates.broker.cert_file,
        "tls.key.file": certificates.broker.key_file,
    }
    use(monkeypatch, ca_file=certificates.ca.cert_file)
    with Broker(settings=settings) as one:
        what, advice = the_problem(f"127.0.0.2:{one.port}")
    assert "DNS:localhost" in what
    assert what.endswith("not for 127.0.0.2.")
    assert "headrace cert dev --host 127.0.0.2" in advice


def test_an_expired_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make_dev_certificates(tmp_path, now=datetime.now(UTC) - timedelta(days=1000))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(old.broker.cert_file, old.broker.key_file)

    def answer(connection: object) -> None:
        with context.wrap_socket(connection, server_side=True):  # type: ignore[arg-type]
            pass

    use(monkeypatch, ca_file=old.ca.cert_file)
    with server(answer) as port:
        what, advice = the_problem(f"127.0.0.1:{port}")
    assert f"has expired at {old.broker.certificate.not_after:%Y-%m-%d}" in what
    assert "Renew it" in advice


def test_a_certificate_that_expires_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make_dev_certificates(tmp_path, now=datetime.now(UTC) - timedelta(days=815))
    settings = {
        "listeners": "tls://127.0.0.1:0",
        "tls.cert.file": old.broker.cert_file,
        "tls.key.file": old.broker.key_file,
    }
    use(monkeypatch, ca_file=old.ca.cert_file)
    with Broker(settings=settings) as one:
        (soon,) = [each for each in found(f"127.0.0.1:{one.port}") if each.status is CheckStatus.WARNING]
    assert "expires in 10 days" in soon.what


def test_a_certificate_of_the_client_is_required(
    certificates: DevCertificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "listeners": "tls://127.0.0.1:0?client.auth=required",
        "tls.cert.file": certificates.broker.cert_file,
        "tls.key.file": certificates.broker.key_file,
        "tls.ca.file": certificates.ca.cert_file,
    }
    (bob,) = certificates.clients
    use(monkeypatch, ca_file=certificates.ca.cert_file)
    with Broker(settings=settings) as one:
        what, advice = the_problem(f"127.0.0.1:{one.port}")
        assert "requires a certificate of the client" in what
        assert "HEADRACE_CERT_FILE" in advice
        use(monkeypatch, cert_file=bob.cert_file, key_file=bob.key_file)
        assert {each.status for each in found(f"127.0.0.1:{one.port}")} == {CheckStatus.OK}


def test_a_mechanism_that_is_off(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, user="root", password=PASSWORD, ca_file=broker.ca_file, mechanism="PLAIN")
    what, advice = the_problem(broker.bootstrap)
    assert "does not offer the mechanism PLAIN, only SCRAM-SHA-256, SCRAM-SHA-512" in what
    assert "sasl.enabled.mechanisms" in advice


def test_a_wrong_password(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, user="root", password="wrong", ca_file=broker.ca_file)
    what, advice = the_problem(broker.bootstrap)
    assert "does not let in the user root" in what
    assert "headrace user passwd root" in advice


def test_no_login_where_one_is_expected(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, ca_file=broker.ca_file)
    what, advice = the_problem(broker.bootstrap)
    assert "expects a user and a password" in what
    assert "HEADRACE_USER" in advice


def test_a_login_where_none_is_expected(plain: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, user="root", password=PASSWORD)
    assert "does not authenticate its clients" in the_problem(plain.bootstrap)[0]


def test_missing_permissions(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, user="alice", password=PASSWORD, ca_file=broker.ca_file)
    what, advice = the_problem(broker.bootstrap, topic="orders")
    assert what == "No ACL allows alice to read the topic orders."
    assert "headrace acl add alice --read topic:orders" in advice
    what, advice = the_problem(broker.bootstrap, group="billing")
    assert "headrace acl add alice --group billing" in advice
    (general,) = [each for each in found(broker.bootstrap) if each.status is CheckStatus.WARNING]
    assert "alice sees no topic" in general.what


def test_credentials_that_make_no_sense(plain: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, password=PASSWORD)
    assert "The credentials cannot be used" in the_problem(plain.bootstrap)[0]


def test_a_topic_that_does_not_exist(plain: Broker) -> None:
    assert the_problem(plain.bootstrap, topic="nothing")[0] == "There is no topic nothing."
