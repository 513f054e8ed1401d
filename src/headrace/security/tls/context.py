"""SSL contexts from PEM files.

TLS 1.2 and 1.3 only; forward secrecy and authenticated encryption only; no compression, no renegotiation.

Session tickets: a client that presents no certificate gets one, since a resumed handshake costs a fraction of a full
one. With client certificates TLS 1.3 issues none: a resumed session does not verify the certificate again. OpenSSL has
no such switch for TLS 1.2 (without tickets it caches sessions in memory instead), so a listener checks the expiry of
the client's certificate itself. Tickets end with the context that issued them, so with every reload.

Every error is a `SettingsError` that names the file and the reason.
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from headrace.model.client_auth import ClientAuth
from headrace.model.errors import SettingsError
from headrace.security.tls.handshake import FailureCallback, ServerContext
from headrace.security.tls.pem_files import check_pair, read_certificates, read_key

TLS_1_2_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
ALPN_HTTP = ("http/1.1",)

_MIN_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of one side of a connection, in PEM."""

    cert_file: Path | None = None
    """The certificate, followed by those of intermediate authorities."""
    key_file: Path | None = None
    """The private key; without it, it is expected in `cert_file`."""
    key_password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    """The authorities that certificates of the other side are verified with."""
    min_version: str = "1.2"

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.cert_file, self.key_file, self.ca_file) if path is not None)


def server_context(
    files: TlsFiles,
    client_auth: ClientAuth = ClientAuth.NONE,
    alpn: Sequence[str] = (),
    on_failure: FailureCallback | None = None,
) -> ssl.SSLContext:
    """A context for a listener. With `ALPN_HTTP` it is one for HTTP; Kafka clients send no ALPN.

    `on_failure` is called with the reason of each handshake that fails.
    """
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, files)
    if files.cert_file is None:
        raise SettingsError("a TLS listener needs a certificate: set tls.cert.file and tls.key.file")
    _load_pair(context, files, files.cert_file)
    if client_auth is not ClientAuth.NONE:
        if files.ca_file is None:
            raise SettingsError(
                f"tls.client.auth={client_auth} needs the authorities that client certificates are verified with: "
                "set tls.ca.file"
            )
        _load_authorities(context, files.ca_file)
        required = client_auth is ClientAuth.REQUIRED
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    context.on_failure = on_failure
    context.num_tickets = 1 if client_auth is ClientAuth.NONE else 0
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def client_context(
    files: TlsFiles, *, verifies: bool = True, verifies_host: bool = True, alpn: Sequence[str] = ()
) -> ssl.SSLContext:
    """A context for connections to a server, with a client certificate if `files` names one.

    Without a `ca_file` the system's authorities are trusted. `verifies=False` accepts any certificate;
    `verifies_host=False` accepts a trusted one for another host.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, files)
    context.check_hostname = verifies and verifies_host
    context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
    if files.ca_file is not None:
        _load_authorities(context, files.ca_file)
    elif verifies:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if files.cert_file is not None:
        _load_pair(context, files, files.cert_file)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def _restrict(context: ssl.SSLContext, files: TlsFiles) -> None:
    if files.min_version not in _MIN_VERSIONS:
        raise SettingsError(f"tls.min.version is {files.min_version!r}: it must be one of {', '.join(_MIN_VERSIONS)}")
    context.minimum_version = _MIN_VERSIONS[files.min_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(TLS_1_2_CIPHERS)


def _load_pair(context: ssl.SSLContext, files: TlsFiles, cert_file: Path) -> None:
    key_file = files.key_file or cert_file
    check_pair(
        cert_file,
        read_certificates(cert_file)[0],
        key_file,
        read_key(key_file, files.key_password),
        datetime.now(UTC),
    )
    try:
        # OpenSSL would ask for a missing password on the terminal.
        context.load_cert_chain(cert_file, key_file, files.key_password or "")
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"{cert_file} and {key_file} cannot be used for TLS: {error}") from error


def _load_authorities(context: ssl.SSLContext, ca_file: Path) -> None:
    read_certificates(ca_file)
    try:
        context.load_verify_locations(ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"{ca_file} cannot be used to verify certificates: {error}") from error
