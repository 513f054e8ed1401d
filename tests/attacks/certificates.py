"""Client certificates that a broker must not accept."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID


def client_pem(folder: Path, user: str, *, authority: Path, days: float = 1, subject: x509.Name | None = None) -> Path:
    """A file with a certificate of the CA in `authority`, valid until so many days from now, and its key."""
    ca = x509.load_pem_x509_certificate((authority / "ca.pem").read_bytes())
    ca_key = load_pem_private_key((authority / "ca-key.pem").read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=days))
        .sign(ca_key, SHA256())
    )
    path = folder / f"{user}.pem"
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)
    )
    return path


def presenting(pem: Path | None, *, trusted: Path) -> ssl.SSLContext:
    """A client's context with a certificate."""
    context = ssl.create_default_context(cafile=str(trusted))
    if pem is not None:
        context.load_cert_chain(pem)
    return context
