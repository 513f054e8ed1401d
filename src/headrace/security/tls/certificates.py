"""What a certificate says: its subject as Kafka writes it, the names it is valid for, and when it expires."""

import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from headrace.security.tls.pem_files import read_certificates

_DAY_S = 86_400.0
_ESCAPED = frozenset(',=+<>#;"\\')
_KEYWORDS = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
"""The attributes that RFC 2253 names; others are written as `OID=#DER`, as Java does."""


@dataclass(frozen=True, slots=True)
class CertificateDetails:
    subject: str
    """The distinguished name as in RFC 2253, exactly as Java's `X500Principal.getName()` writes it."""
    issuer: str
    names: tuple[str, ...]
    """Subject alternative names: `DNS:localhost`, `IP:127.0.0.1`, `URI:spiffe://…`, `EMAIL:…`."""
    serial: str
    not_before: datetime
    not_after: datetime

    def expires_in_days(self, now: datetime | None = None) -> float:
        """Days until expiry; negative for an expired certificate."""
        return (self.not_after - (now or datetime.now(UTC))) / timedelta(seconds=_DAY_S)

    @property
    def expires_at_s(self) -> float:
        """Seconds since the epoch, for a metric."""
        return self.not_after.timestamp()


def details_of_peer(ssl_object: ssl.SSLObject | ssl.SSLSocket) -> CertificateDetails | None:
    """The details of the certificate that the other side presented and we verified; None if there is none.

    `ValueError` for one that OpenSSL accepts and that is not valid DER: refuse the connection. Compare `not_after` with
    the clock too, because a session that is resumed does not verify the certificate again.
    """
    der = ssl_object.getpeercert(binary_form=True)
    return None if der is None else details_of_der(der)


def details_of_der(der: bytes) -> CertificateDetails:
    """The details of a certificate in DER. `ValueError` if damaged."""
    return details(x509.load_der_x509_certificate(der))


def details_of_file(path: Path) -> CertificateDetails:
    """The details of the first certificate in a PEM file."""
    return details(read_certificates(path)[0])


def details(certificate: x509.Certificate) -> CertificateDetails:
    return CertificateDetails(
        subject=distinguished_name(certificate.subject),
        issuer=distinguished_name(certificate.issuer),
        names=tuple(_alternative_names(certificate)),
        serial=f"{certificate.serial_number:x}",
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
    )


def why_untrusted(
    chain: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate], now: datetime
) -> str | None:
    """Why no chain of valid certificates leads from the first in `chain` to an authority. None if one does.

    For people who look at files: names and usages are left to the handshake.
    """
    certificate = chain[0]
    for _ in range(len(chain) + 1):
        subject = distinguished_name(certificate.subject)
        if now > certificate.not_valid_after_utc:
            return f"{subject} expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        if now < certificate.not_valid_before_utc:
            return f"{subject} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        if certificate in authorities:
            return None
        issuer = next((each for each in (*authorities, *chain[1:]) if _is_issued_by(certificate, each)), None)
        if issuer is None:
            return f"the issuer of {subject}, {distinguished_name(certificate.issuer)}, is not among the authorities"
        certificate = issuer
    return "the chain has a loop"


def _is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
        return bool(issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False


def distinguished_name(name: x509.Name) -> str:
    """A name as in RFC 2253: `CN=alice,OU=payments,O=Example`, the most specific part first.

    `name` is read from a certificate: there, the attributes of one part are in the order of their encoding.
    """
    encoded = _encoded_values(name.public_bytes())
    parts = [[_attribute(attribute, next(encoded)) for attribute in rdn] for rdn in name.rdns]
    return ",".join("+".join(part) for part in reversed(parts))


def _attribute(attribute: "x509.NameAttribute[str | bytes]", encoded: bytes) -> str:
    keyword = _KEYWORDS.get(attribute.oid)
    if keyword is None or isinstance(attribute.value, bytes):
        return f"{keyword or attribute.oid.dotted_string}=#{encoded.hex()}"
    return f"{keyword}={_escape(attribute.value)}"


def _escape(value: str) -> str:
    stripped = value.strip(" ")
    lead = len(value) - len(value.lstrip(" "))
    body = "".join(f"\\{char}" if char in _ESCAPED else "\\00" if char == "\0" else char for char in stripped)
    return "\\ " * lead + body + "\\ " * (len(value) - lead - len(stripped))


def _encoded_values(der: bytes) -> Iterator[bytes]:
    """The value of each attribute of a DER name, with its tag and length."""
    for rdn in _members(_content(der)):
        for attribute in _members(_content(rdn)):
            _oid, value = _members(_content(attribute))
            yield value


def _members(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        end = at + sum(_header(content[at:]))
        yield content[at:end]
        at = end


def _content(element: bytes) -> bytes:
    return element[_header(element)[0] :]


def _header(element: bytes) -> tuple[int, int]:
    """The lengths of an element's header and of its content."""
    first = element[1]
    if first < 0x80:
        return 2, first
    digits = first & 0x7F
    return 2 + digits, int.from_bytes(element[2 : 2 + digits])


def _alternative_names(certificate: x509.Certificate) -> Iterator[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return
    for name in found:
        match name:
            case x509.DNSName():
                yield f"DNS:{name.value}"
            case x509.IPAddress():
                yield f"IP:{name.value}"
            case x509.UniformResourceIdentifier():
                yield f"URI:{name.value}"
            case x509.RFC822Name():
                yield f"EMAIL:{name.value}"
            case _:
                continue
