"""Finds out whether a port expects TLS: for error messages about connections that were closed without an answer."""

import socket
import ssl


def speaks_tls(host: str, port: int, timeout_s: float) -> bool:
    """Whether a server answers a TLS handshake; it may refuse it, as one that requires a certificate does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # No data is sent on this connection: only the protocol is of interest, not the server's identity.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (OSError, UnicodeError):
        return False
