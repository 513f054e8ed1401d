"""The SSL context of a client from its credentials."""

import ssl
from pathlib import Path

from headrace.config.credentials import Credentials
from headrace.security.tls.context import TlsFiles, client_context


def credentials_context(credentials: Credentials) -> ssl.SSLContext:
    """A context with the client's authorities and certificate; `SettingsError` for a file that cannot be used."""
    files = TlsFiles(
        cert_file=_path(credentials.cert_file),
        key_file=_path(credentials.key_file),
        key_password=credentials.key_password or None,
        ca_file=_path(credentials.ca_file),
    )
    return client_context(files, verifies_host=credentials.verify_hostname)


def _path(text: str) -> Path | None:
    return Path(text) if text else None
