"""Certificates for development: an authority, one for brokers and one for each client, in a folder.

    ca.pem      ca-key.pem                              the authority; only ca.pem is given to others
    broker.pem  broker-key.pem                          for the broker, valid for `localhost`, this host and `hosts`
    NAME.pem    NAME-key.pem    NAME-keystore.pem       for the client NAME; the last has key and certificate, for Java

Running it again reuses the authority and leaves certificates as they are, unless they are to be renewed, have expired,
or are of another authority. Keys are
readable by their owner only, and files are replaced by a rename, so that a broker reloads them.
"""

import os
import re
import secrets
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headrace.model.errors import SettingsError
from headrace.security.tls.certificates import CertificateDetails, details, details_of_file
from headrace.security.tls.pem_files import check_pair, read_certificates, read_key

CA_DAYS = 3652
DAYS = 825
"""The longest validity that Apple's systems accept."""

CA, BROKER = "ca", "broker"
_CLOCK_SKEW = timedelta(minutes=5)
_CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


@dataclass(frozen=True, slots=True)
class DevCertificate:
    """One certificate in the folder."""

    name: str
    cert_file: Path
    key_file: Path
    keystore_file: Path | None
    """Key and certificate in one file, for clients only."""
    certificate: CertificateDetails
    is_new: bool


@dataclass(frozen=True, slots=True)
class DevCertificates:
    ca: DevCertificate
    broker: DevCertificate
    clients: tuple[DevCertificate, ...]
    missing_hosts: tuple[str, ...] = ()
    """Requested hosts that an existing broker certificate is not valid for."""


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def make_dev_certificates(
    folder: Path,
    *,
    hosts: Sequence[str] = (),
    clients: Sequence[str] = (),
    renews: bool = False,
    now: datetime | None = None,
) -> DevCertificates:
    """Create the files that are missing. `SettingsError` if the folder has an authority that cannot be used."""
    for client in clients:
        if not _CLIENT_NAME.fullmatch(client) or client in (CA, BROKER) or client.endswith(("-key", "-keystore")):
            raise SettingsError(
                f"{client!r} cannot be the name of a client: use letters, digits and . _ @ - (not {CA} or {BROKER}, "
                "not -key or -keystore at the end)"
            )
    now = now or datetime.now(UTC)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        authority, ca = _authority(folder, now)
        names = _broker_names(hosts)
        broker = _issue(folder, BROKER, authority, now, names=names, renews=renews)
        made = [_issue(folder, client, authority, now, renews=renews) for client in dict.fromkeys(clients)]
    except OSError as error:
        raise SettingsError(f"cannot write certificates to {folder}: {error.strerror}") from error
    return DevCertificates(ca, broker, tuple(made), missing_hosts(broker.cert_file, hosts))


def missing_hosts(cert_file: Path, hosts: Iterable[str]) -> tuple[str, ...]:
    """Hosts that the certificate is not valid for."""
    names = details_of_file(cert_file).names
    return tuple(host for host in hosts if _text(_general_name(host)) not in names)


def _authority(folder: Path, now: datetime) -> tuple[_Authority, DevCertificate]:
    cert_file, key_file = folder / f"{CA}.pem", folder / f"{CA}-key.pem"
    is_new = not cert_file.exists() and not key_file.exists()
    if is_new:
        key = ec.generate_private_key(ec.SECP256R1())
        # Unique, so that an authority from another folder is not mistaken for this one.
        name = _name(f"Headrace development CA {secrets.token_hex(4)}")
        builder = _builder(name, name, key.public_key(), now, CA_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(is_authority=True), critical=True)
        _write_pair(key_file, key, cert_file, builder.sign(key, hashes.SHA256()))
    certificate, key_found = read_certificates(cert_file)[0], read_key(key_file, None)
    check_pair(cert_file, certificate, key_file, key_found, now)
    if not isinstance(key_found, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise SettingsError(f"the private key in {key_file} cannot sign certificates")
    made = DevCertificate(CA, cert_file, key_file, None, details(certificate), is_new)
    return _Authority(certificate, key_found), made


def _issue(
    folder: Path,
    name: str,
    authority: _Authority,
    now: datetime,
    *,
    names: Sequence[x509.GeneralName] = (),
    renews: bool,
) -> DevCertificate:
    cert_file, key_file = folder / f"{name}.pem", folder / f"{name}-key.pem"
    keystore_file = None if name == BROKER else folder / f"{name}-keystore.pem"
    files = [file for file in (cert_file, key_file, keystore_file) if file is not None]
    is_new = renews or not all(file.exists() for file in files) or not _is_usable(cert_file, authority, now)
    if is_new:
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if name == BROKER:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = _builder(_name(name), authority.certificate.subject, key.public_key(), now, DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(is_authority=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(authority.key, hashes.SHA256())
        _write_pair(key_file, key, cert_file, certificate)
        if keystore_file is not None:
            _write(keystore_file, _pem(key) + certificate.public_bytes(Encoding.PEM), 0o600)
    found = read_certificates(cert_file)[0]
    return DevCertificate(name, cert_file, key_file, keystore_file, details(found), is_new)


def _is_usable(cert_file: Path, authority: _Authority, now: datetime) -> bool:
    certificate = read_certificates(cert_file)[0]
    return certificate.issuer == authority.certificate.subject and now < certificate.not_valid_after_utc


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _broker_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    own = [name for name in (socket.gethostname(),) if name.isascii() and name]
    return [_general_name(host) for host in dict.fromkeys(("localhost", "127.0.0.1", "::1", *own, *hosts))]


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host.encode("idna").decode() if not host.isascii() else host)
    except (ValueError, UnicodeError) as error:
        raise SettingsError(f"{host!r} is not a host name") from error


def _text(name: x509.GeneralName) -> str:
    return f"{'IP' if isinstance(name, x509.IPAddress) else 'DNS'}:{name.value}"


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write_pair(
    key_file: Path, key: ec.EllipticCurvePrivateKey, cert_file: Path, certificate: x509.Certificate
) -> None:
    _write(key_file, _pem(key), 0o600)
    _write(cert_file, certificate.public_bytes(Encoding.PEM), 0o644)


def _write(path: Path, data: bytes, mode: int) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)
