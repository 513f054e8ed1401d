"""Authentication of a request: HTTP Basic with a user's password, over TLS or from this machine only.

Without credentials a request is anonymous. An anonymous request from this machine may come from a web page in a
browser there, or through a proxy: one with another site's `Origin`, with a `Host` that is no name of this machine (DNS
rebinding), or with a proxy's header does not count as local.
"""

import asyncio
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request

from headrace.admin.errors import AdminError, forbidden, unauthorized
from headrace.admin.services import AdminServices
from headrace.config.address import is_loopback
from headrace.model.users import User, principal_of
from headrace.security.authenticator import Login
from headrace.security.basic_login import MECHANISM, parse_basic, verify_password
from headrace.security.login_queue import LoginsBusy
from headrace.security.subject import Subject

_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_MAPPED = "::ffff:"
_WRONG = "the user name or the password is wrong"


async def authenticate(services: AdminServices, request: Request) -> Subject:
    """The subject of a request; anonymous without credentials. Raises `AdminError`."""
    scheme = str(request.scope["scheme"])
    host = _client_host(request)
    anonymous = Subject(host=host, listener=scheme)
    if scheme != "https" and not is_loopback(host):
        # Asking for a password would make a client send it unencrypted.
        raise forbidden("from other machines this is served over TLS only: use https (http.listen=https://HOST:PORT)")
    header = request.headers.get("authorization")
    if header is None:
        return anonymous
    credentials = parse_basic(header)
    if credentials is None:
        raise await _failed(services, anonymous, "", "malformed credentials")
    name, password = credentials
    user = await verified_user(services, host, name, password)
    if user is None:
        raise await _failed(services, anonymous, name, "no such user, or a wrong password")
    subject = anonymous._replace(principal=principal_of(user.name), mechanism=MECHANISM)
    services.security.logged_in(Login(subject.principal, host, MECHANISM, scheme, has_succeeded=True))
    return subject


def is_local(request: Request) -> bool:
    """Whether a request was made by a program on this machine, and not by a web page or through a proxy."""
    headers = request.headers
    if not is_loopback(_client_host(request)) or any(name in headers for name in _PROXY_HEADERS):
        return False
    host = headers.get("host", "localhost")
    if not is_loopback(_host_name(host)):
        return False
    return _is_same_origin(headers, f"{request.scope['scheme']}://{host}")


def _is_same_origin(headers: Headers, own: str) -> bool:
    return headers.get("origin", own) == own and headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _client_host(request: Request) -> str:
    client = request.scope.get("client")
    return str(client[0]).removeprefix(_MAPPED) if client else "unknown"


async def verified_user(services: AdminServices, host: str, name: str, password: str) -> User | None:
    """The user, if this is its password now. Raises `AdminError` if too many clients log in."""
    try:
        return await verify_password(await services.authenticator(), services.security, host, name, password)
    except LoginsBusy:
        raise AdminError(503, "busy", "too many clients log in at the same time", {"retry-after": "1"}) from None


async def _failed(services: AdminServices, subject: Subject, name: str, reason: str) -> AdminError:
    """Report a failure, and return the error after a delay: the same one for every reason."""
    services.security.client_failures.note(subject.host, f"{subject.host} failed to authenticate over HTTP: {reason}")
    claimed = principal_of(name) if name else ""
    services.security.logged_in(
        Login(claimed, subject.host, MECHANISM, subject.listener, has_succeeded=False, reason=reason)
    )
    await asyncio.sleep(services.metadata.settings.connection_failed_authentication_delay_ms / 1000)
    return unauthorized(_WRONG)
