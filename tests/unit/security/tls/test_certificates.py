from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from headrace.security.tls.certificates import (
    details_of_der,
    details_of_file,
    details_of_peer,
    distinguished_name,
    why_untrusted,
)
from headrace.security.tls.context import TlsFiles, client_context, server_context
from headrace.security.tls.dev_certificates import DevCertificates, make_dev_certificates
from headrace.security.tls.pem_files import read_certificates
from tests.unit.security.tls.echo import EchoClient, echo_server


def name(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (name((NameOID.COMMON_NAME, "alice")), "CN=alice"),
        (
            name(
                (NameOID.COUNTRY_NAME, "NO"),
                (NameOID.STATE_OR_PROVINCE_NAME, "Oslo"),
                (NameOID.LOCALITY_NAME, "Oslo"),
                (NameOID.ORGANIZATION_NAME, "Example"),
                (NameOID.ORGANIZATIONAL_UNIT_NAME, "Payments"),
                (NameOID.COMMON_NAME, "alice"),
            ),
            "CN=alice,OU=Payments,O=Example,L=Oslo,ST=Oslo,C=NO",
        ),
        (name((NameOID.DOMAIN_COMPONENT, "org"), (NameOID.USER_ID, "a1")), "UID=a1,DC=org"),
        # The characters that Java escapes.
        (name((NameOID.COMMON_NAME, 'a,b+c"d\\e<f>g;h=i#j')), 'CN=a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h\\=i\\#j'),
        (name((NameOID.COMMON_NAME, "  a b ")), "CN=\\ \\ a b\\ "),
        (name((NameOID.COMMON_NAME, " ")), "CN=\\ "),
        (name((NameOID.COMMON_NAME, "Åse")), "CN=Åse"),
        # Attributes without a keyword in RFC 2253: the DER of the value in hex, as in Java.
        (
            name((NameOID.EMAIL_ADDRESS, "a@b"), (NameOID.COMMON_NAME, "a")),
            "CN=a,1.2.840.113549.1.9.1=#1603614062",
        ),
        (name((NameOID.SERIAL_NUMBER, "7" * 64)), "2.5.4.5=#1340" + "37" * 64),
        (name((NameOID.TITLE, "x" * 64)), "2.5.4.12=#0c40" + "78" * 64),
        (
            x509.Name(
                [
                    x509.RelativeDistinguishedName(
                        [
                            x509.NameAttribute(NameOID.COMMON_NAME, "a"),
                            x509.NameAttribute(NameOID.USER_ID, "1"),
                        ]
                    )
                ]
            ),
            "CN=a+UID=1",
        ),
        (x509.Name([]), ""),
    ],
)
def test_a_distinguished_name_as_java_writes_it(subject, text):
    assert distinguished_name(subject) == text


@pytest.fixture
def made(tmp_path) -> DevCertificates:
    return make_dev_certificates(tmp_path, hosts=["10.1.2.3", "broker.example.org"], clients=["alice"])


def test_details(made):
    found = details_of_file(made.broker.cert_file)
    assert found.subject == "CN=broker"
    assert found.issuer == details_of_file(made.ca.cert_file).subject
    assert {"DNS:localhost", "IP:127.0.0.1", "IP:::1", "IP:10.1.2.3", "DNS:broker.example.org"} <= set(found.names)
    assert found.expires_in_days() == pytest.approx(825, abs=0.1)
    assert found.expires_in_days(found.not_after + timedelta(days=2)) == -2
    der = read_certificates(made.broker.cert_file)[0].public_bytes(Encoding.DER)
    assert details_of_der(der) == found
    with pytest.raises(ValueError, match="parsing"):
        details_of_der(der[:-1])


def test_details_of_a_peer(made):
    files = TlsFiles(made.broker.cert_file, made.broker.key_file, None, made.ca.cert_file)
    with (
        echo_server(server_context(files)) as port,
        EchoClient(port, client_context(TlsFiles(ca_file=made.ca.cert_file))) as client,
    ):
        assert details_of_peer(client.socket) == made.broker.certificate


def test_trust(made, tmp_path):
    now = datetime.now(UTC)
    (broker,), (authority,) = read_certificates(made.broker.cert_file), read_certificates(made.ca.cert_file)
    (alice,) = read_certificates(made.clients[0].cert_file)
    assert why_untrusted([broker], [authority], now) is None
    assert why_untrusted([authority], [authority], now) is None
    assert "is not among the authorities" in (why_untrusted([broker], [], now) or "")
    assert "CN=alice expired at" in (why_untrusted([alice], [authority], now + timedelta(days=900)) or "")
    assert "is not valid before" in (why_untrusted([alice], [authority], now - timedelta(days=1)) or "")
    other = make_dev_certificates(tmp_path / "other")
    (stranger,) = read_certificates(other.broker.cert_file)
    assert "is not among the authorities" in (why_untrusted([stranger], [authority], now) or "")
    # What a chain says of itself is no reason to trust it.
    (its_authority,) = read_certificates(other.ca.cert_file)
    assert why_untrusted([stranger, its_authority], [authority], now) is not None
