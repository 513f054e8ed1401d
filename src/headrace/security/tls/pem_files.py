"""Reads certificates and private keys from PEM files, with errors that name the file and the reason."""

from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from headrace.model.errors import SettingsError

_MAX_BYTES = 16 * 1024 * 1024


def read_certificates(path: Path) -> list[x509.Certificate]:
    """The certificates in a file, at least one."""
    data = _read(path)
    if b"-----BEGIN CERTIFICATE-----" not in data:
        hint = "it has a private key" if b"PRIVATE KEY-----" in data else "no PEM block -----BEGIN CERTIFICATE-----"
        raise SettingsError(f"{path} has no certificate: {hint}")
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise SettingsError(f"{path} has a damaged certificate: {error}") from error


def read_key(path: Path, password: str | None) -> PrivateKeyTypes:
    data = _read(path)
    if b"PRIVATE KEY-----" not in data:
        raise SettingsError(f"{path} has no private key: there is no PEM block -----BEGIN PRIVATE KEY-----")
    is_encrypted = b"ENCRYPTED" in data
    if is_encrypted and not password:
        raise SettingsError(f"the private key in {path} is encrypted: set tls.key.password")
    try:
        return load_pem_private_key(data, password.encode() if password and is_encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        if is_encrypted:
            raise SettingsError(f"the private key in {path} cannot be decrypted: is tls.key.password right?") from error
        raise SettingsError(f"the private key in {path} cannot be read: {error}") from error


def check_pair(
    cert_file: Path, certificate: x509.Certificate, key_file: Path, key: PrivateKeyTypes, now: datetime
) -> None:
    """Raise `SettingsError` unless the key belongs to the certificate and the certificate is valid now."""
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if certificate.public_key().public_bytes(*form) != key.public_key().public_bytes(*form):
        raise SettingsError(f"the private key in {key_file} does not belong to the certificate in {cert_file}")
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > ends:
        raise SettingsError(f"the certificate in {cert_file} expired at {ends:%Y-%m-%d %H:%M} UTC: renew it")
    if now < begins:
        raise SettingsError(
            f"the certificate in {cert_file} is not valid before {begins:%Y-%m-%d %H:%M} UTC: "
            "is the clock of this machine right?"
        )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES)
    except FileNotFoundError as error:
        raise SettingsError(f"{path} does not exist") from error
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
