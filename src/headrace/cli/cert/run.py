"""The work of `headrace cert`."""

import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from cryptography import x509

from headrace.cli.cert.advice import advice
from headrace.cli.errors import CommandFailed
from headrace.cli.output import print_json, say
from headrace.config.address import parse_address
from headrace.model.errors import SettingsError
from headrace.model.image import Endpoint
from headrace.security.tls.certificates import CertificateDetails, details, why_untrusted
from headrace.security.tls.context import TlsFiles, client_context
from headrace.security.tls.dev_certificates import DevCertificate, make_dev_certificates
from headrace.security.tls.handshake import handshake_reason
from headrace.security.tls.pem_files import read_certificates


def make(folder: Path, *, hosts: Sequence[str], clients: Sequence[str], renews: bool, as_json: bool) -> None:
    made = make_dev_certificates(folder.absolute(), hosts=hosts, clients=clients, renews=renews)
    certificates = [made.ca, made.broker, *made.clients]
    if as_json:
        print_json([_file_json(each) for each in certificates])
    else:
        for each in certificates:
            typer.echo(_file_line(each))
        typer.echo(f"\n{advice(made)}")
    if made.missing_hosts:
        say(
            f"headrace: {made.broker.cert_file} exists and is not valid for {', '.join(made.missing_hosts)}; "
            "--renew replaces it"
        )


def _file_line(each: DevCertificate) -> str:
    word = "made" if each.is_new else "exists"
    names = ", ".join(name.partition(":")[2] for name in each.certificate.names)
    for_names = f", for {names}" if names else ""
    return (
        f"{word:>6}  {each.cert_file}  {each.certificate.subject}{for_names}, until {_day(each.certificate.not_after)}"
    )


def _file_json(each: DevCertificate) -> dict[str, Any]:
    return {
        "name": each.name,
        "cert_file": str(each.cert_file),
        "key_file": str(each.key_file),
        "keystore_file": each.keystore_file and str(each.keystore_file),
        "is_new": each.is_new,
        **_details_json(each.certificate),
    }


@dataclass(frozen=True, slots=True)
class _Shown:
    certificate: CertificateDetails
    chain: tuple[str, ...]
    """The subjects of further certificates in a file."""
    is_trusted: bool | None
    reason: str | None
    connection: str | None
    """The version of TLS and the cipher of a port."""


def present(where: str, *, ca_file: Path | None, timeout_s: float, as_json: bool) -> None:
    path = Path(where)
    if path.exists() or ("/" in where and ":" not in where):
        shown = _of_file(path, ca_file)
    else:
        shown = _of_port(_address(where), ca_file, timeout_s)
    days = shown.certificate.expires_in_days()
    if as_json:
        print_json(
            {
                **_details_json(shown.certificate),
                "chain": shown.chain,
                "connection": shown.connection,
                "is_trusted": shown.is_trusted,
                "reason": shown.reason,
            }
        )
    else:
        _print(shown, days)
    if days < 0 or shown.is_trusted is False:
        raise typer.Exit(1)


def _print(shown: _Shown, days: float) -> None:
    certificate = shown.certificate
    expiry = f"expired {-days:.0f} days ago" if days < 0 else f"in {days:.0f} days"
    rows = [
        ("subject", certificate.subject),
        ("names", ", ".join(certificate.names) or "none: clients that verify host names refuse it as a server's"),
        ("issuer", certificate.issuer),
        ("serial", certificate.serial),
        ("valid from", _day(certificate.not_before)),
        ("expires", f"{_day(certificate.not_after)} ({expiry})"),
    ]
    rows += [("chain", subject) for subject in shown.chain]
    if shown.connection is not None:
        rows.append(("connection", shown.connection))
    if shown.is_trusted is not None:
        rows.append(("trusted", "yes" if shown.is_trusted else f"no: {shown.reason}"))
    for name, text in rows:
        typer.echo(f"{name:<11} {text}")


def _of_file(path: Path, ca_file: Path | None) -> _Shown:
    chain = read_certificates(path)
    reason = None
    if ca_file is not None:
        reason = why_untrusted(chain, read_certificates(ca_file), datetime.now(UTC))
    subjects = tuple(details(each).subject for each in chain[1:])
    return _Shown(details(chain[0]), subjects, None if ca_file is None else reason is None, reason, None)


def _of_port(where: Endpoint, ca_file: Path | None, timeout_s: float) -> _Shown:
    try:
        der, connection = _handshake(where, client_context(TlsFiles(), verifies=False), timeout_s)
    except ssl.SSLError as error:
        raise CommandFailed(f"{where} does not complete a TLS handshake: {_reason(error)}") from error
    except OSError as error:
        raise CommandFailed(f"{where} cannot be reached: {error}") from error
    is_trusted, reason = None, None
    if ca_file is not None:
        try:
            _handshake(where, client_context(TlsFiles(ca_file=ca_file)), timeout_s)
            is_trusted = True
        except OSError as error:
            is_trusted, reason = False, _reason(error)
    return _Shown(details(x509.load_der_x509_certificate(der)), (), is_trusted, reason, connection)


def _handshake(where: Endpoint, context: ssl.SSLContext, timeout_s: float) -> tuple[bytes, str]:
    host = where.host or "localhost"
    with (
        socket.create_connection((host, where.port), timeout_s) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        der, cipher = secured.getpeercert(binary_form=True), secured.cipher()
        if der is None or cipher is None:
            raise CommandFailed(f"{where} presents no certificate")
        return der, f"{secured.version()}, {cipher[0]}"


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return "it does not speak TLS"
    return handshake_reason(error)


def _address(where: str) -> Endpoint:
    try:
        return parse_address(where)
    except SettingsError as error:
        raise SettingsError(f"there is no file {where}, and {error}") from error


def _details_json(certificate: CertificateDetails) -> dict[str, Any]:
    return {
        "subject": certificate.subject,
        "names": certificate.names,
        "issuer": certificate.issuer,
        "serial": certificate.serial,
        "not_before": certificate.not_before.isoformat(),
        "not_after": certificate.not_after.isoformat(),
        "expires_in_days": round(certificate.expires_in_days(), 2),
    }


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
