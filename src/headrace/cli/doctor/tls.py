"""The TLS handshake of `headrace doctor`: why a certificate is not accepted, in words."""

import socket
import ssl
from collections.abc import Iterator

from headrace.cli.doctor.findings import Finding, ok, problem, warning
from headrace.config.credentials import Credentials
from headrace.model.errors import SettingsError
from headrace.model.image import Endpoint
from headrace.security.tls.certificates import CertificateDetails, details_of_der
from headrace.security.tls.client_context import credentials_context
from headrace.security.tls.context import TlsFiles, client_context
from headrace.wire.security import speaks_plain_kafka

_EXPIRED, _NOT_YET_VALID = 10, 9
_OTHER_NAME = (62, 64)
"""OpenSSL's codes: the name and the address of the host."""
_WARN_DAYS = 30
USE_NO_TLS = "Leave out HEADRACE_TLS and HEADRACE_CA_FILE (or tls in the profile), or use the port with TLS."


def check_tls(where: Endpoint, credentials: Credentials, timeout_s: float) -> Iterator[Finding]:
    """Shake hands as a client does. The last finding is a problem if it cannot."""
    try:
        context = credentials_context(credentials)
    except SettingsError as error:
        yield problem(f"TLS cannot be used: {error}.", "Check the files that the environment or the profile names.")
        return
    try:
        certificate, version = _handshake(where, context, timeout_s)
    except ssl.SSLCertVerificationError as error:
        yield _untrusted(where, credentials, error, _presented(where, timeout_s))
        return
    except OSError as error:
        yield _failed(where, error, timeout_s)
        return
    days = certificate.expires_in_days()
    yield ok(f"TLS works ({version}), and the certificate {certificate.subject} is trusted.")
    if days < _WARN_DAYS:
        yield warning(
            f"The certificate of {where} expires in {days:.0f} days.",
            "Renew it: a running broker uses the new files within seconds.",
        )


def _handshake(where: Endpoint, context: ssl.SSLContext, timeout_s: float) -> tuple[CertificateDetails, str]:
    with (
        socket.create_connection((where.host, where.port), timeout_s) as plain,
        context.wrap_socket(plain, server_hostname=where.host) as secured,
    ):
        der = secured.getpeercert(binary_form=True)
        if der is None:
            raise ssl.SSLError("no certificate was presented")
        return details_of_der(der), secured.version() or "TLS"


def _presented(where: Endpoint, timeout_s: float) -> CertificateDetails | None:
    """The certificate of a server, without verification; None if the handshake fails."""
    try:
        return _handshake(where, client_context(TlsFiles(), verifies=False), timeout_s)[0]
    except (OSError, ValueError):
        return None


def _untrusted(
    where: Endpoint, credentials: Credentials, error: ssl.SSLCertVerificationError, found: CertificateDetails | None
) -> Finding:
    subject = "" if found is None else f" {found.subject}"
    if error.verify_code == _EXPIRED:
        when = "" if found is None or found.expires_in_days() > 0 else f" at {found.not_after:%Y-%m-%d %H:%M} UTC"
        whose = f"The certificate{subject} of {where}" if when else f"A certificate in the chain of {where}"
        return problem(
            f"{whose} has expired{when}.",
            "Renew it: a running broker uses the new files within seconds (headrace cert dev --renew for your own).",
        )
    if error.verify_code == _NOT_YET_VALID:
        return problem(f"The certificate{subject} of {where} is not valid yet.", "Check the clocks of both machines.")
    if error.verify_code in _OTHER_NAME:
        names = "no name" if found is None or not found.names else ", ".join(found.names)
        return problem(
            f"The certificate{subject} is for {names}, not for {where.host}.",
            f"Connect by one of its names, or make one for this: headrace cert dev --host {where.host} --renew.",
        )
    issuer = "an authority" if found is None else found.issuer
    authorities = f"is not in {credentials.ca_file}" if credentials.ca_file else "the system does not trust"
    return problem(
        f"The certificate{subject} of {where} was issued by {issuer}, which {authorities}.",
        "Set HEADRACE_CA_FILE (or ca_file in the profile) to the CA file of this broker, often ca.pem.",
    )


def _failed(where: Endpoint, error: OSError, timeout_s: float) -> Finding:
    if speaks_plain_kafka(where, timeout_s):
        return problem(f"{where} expects no TLS on this port, and you use it.", USE_NO_TLS)
    if isinstance(error, TimeoutError):
        return problem(f"{where} does not answer a TLS handshake.", "Is this a port with TLS?")
    reason = (error.reason or str(error)).replace("_", " ").lower() if isinstance(error, ssl.SSLError) else str(error)
    if "alert" in reason:
        return problem(
            f"{where} refuses the TLS handshake: {reason}.",
            "It may require a certificate (HEADRACE_CERT_FILE and HEADRACE_KEY_FILE), or another version of TLS.",
        )
    return problem(f"{where} does not speak TLS ({reason}), and you use it.", USE_NO_TLS)
