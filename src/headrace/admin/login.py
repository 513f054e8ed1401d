"""Authentication of a request: HTTP Basic with a user's password, or a session's cookie, over TLS or from this machine.

Without credentials a request is anonymous. An anonymous request from this machine may come from a web page in a
browser there, or through a proxy: one with another site's `Origin`, with a `Host` that is no name of this machine (DNS
rebinding), or with a proxy's header does not count as local.

A broker that is `insecure` and has authorization off serves anonymous requests of other machines, too, under the same
conditions. Its `Host` is then an address, a name without a dot, or one that this broker advertises: no other site can
have such a name.
"""

import asyncio
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import NamedTuple

from starlette.requests import Request

from headrace.admin.errors import AdminError, forbidden, unauthorized
from headrace.admin.services import AdminServices
from headrace.admin.sessions import COOKIE, Session
from headrace.config.address import is_loopback
from headrace.model.users import User, principal_of
from headrace.security import local_requests
from headrace.security.authenticator import Login
from headrace.security.basic_login import MECHANISM, parse_basic, verify_password
from headrace.security.local_requests import host_name
from headrace.security.login_queue import LoginsBusy
from headrace.security.subject import Subject

CSRF_HEADER = "x-csrf-token"
SESSION_MECHANISM = "SESSION"
_WRONG = "the user name or the password is wrong"
_MAX_COOKIE_BYTES = 4096


class Identity(NamedTuple):
    """Who makes a request."""

    subject: Subject
    session: Session | None = None
    """For a browser that has logged in."""


async def authenticate(services: AdminServices, request: Request) -> Identity:
    """The identity of a request; anonymous without credentials. Raises `AdminError`."""
    scheme = str(request.scope["scheme"])
    host = client_host(request)
    anonymous = Subject(host=host, listener=scheme)
    header = request.headers.get("authorization")
    if scheme != "https" and not is_loopback(host) and (header is not None or not _is_open(services)):
        # Asking for a password would make a client send it unencrypted.
        raise forbidden("from other machines this is served over TLS only: use https (http.listen=https://HOST:PORT)")
    if header is not None:
        credentials = parse_basic(header)
        if credentials is None:
            raise await _failed(services, anonymous, "", "malformed credentials")
        user = await log_in(services, anonymous, *credentials)
        return Identity(anonymous._replace(principal=principal_of(user.name), mechanism=MECHANISM))
    session = services.sessions.find(session_cookie(request.headers, own_port(request)))
    if session is None:
        return Identity(anonymous)
    subject = anonymous._replace(principal=principal_of(session.user.name), mechanism=SESSION_MECHANISM)
    return Identity(subject, session)


async def log_in(services: AdminServices, client: Subject, name: str, password: str) -> User:
    """The user with this password. Raises `AdminError` after a delay if it is wrong."""
    user = await verified_user(services, client.host, name, password)
    if user is None:
        raise await _failed(services, client, name, "no such user, or a wrong password")
    login = Login(principal_of(user.name), client.host, MECHANISM, client.listener, has_succeeded=True)
    services.security.logged_in(login)
    return user


def check_origin(request: Request, identity: Identity) -> None:
    """Refuse a change that a page of another site makes a browser send. Programs send no `Origin`."""
    if not local_requests.is_same_origin(request.headers, request.scope["scheme"]):
        raise forbidden("a page of another site may not change anything here")
    session = identity.session
    if session is not None and not session.accepts(request.headers.get(CSRF_HEADER, "")):
        raise AdminError(403, "csrf", f"a change needs the token of GET /session in the header {CSRF_HEADER}")


def is_local(request: Request) -> bool:
    """Whether a request was made by a program on this machine, and not by a web page or through a proxy."""
    return local_requests.is_local(request.headers, request.scope["scheme"], client_host(request))


def is_trusted(services: AdminServices, request: Request) -> bool:
    """Whether a request is allowed without a login, while authorization is off."""
    if is_local(request):
        return True
    name, is_direct = host_name(request.headers), local_requests.is_direct(request.headers, request.scope["scheme"])
    return _is_open(services) and is_direct and (_is_unambiguous(name) or name in _advertised(services))


def _is_open(services: AdminServices) -> bool:
    """Whether every client that reaches the port may do everything."""
    return services.metadata.settings.insecure and services.security.authorizer is None


def _is_unambiguous(name: str) -> bool:
    """Whether a host name cannot be one that another site has registered."""
    try:
        ip_address(name)
    except ValueError:
        return "." not in name and bool(name)
    return True


def _advertised(services: AdminServices) -> set[str]:
    broker = services.metadata.image.brokers.get(services.metadata.broker_id)
    found = set() if broker is None else {each.host.lower() for each in (broker.endpoint, *broker.listeners.values())}
    return found - {""}


def client_host(request: Request) -> str:
    return local_requests.client_of(request.scope.get("client"))


def own_port(request: Request) -> int:
    """The port at which the client reached this broker."""
    server = request.scope.get("server")
    return int(server[1]) if server else 0


def session_cookie(headers: Mapping[str, str], port: int) -> str:
    """The id of the session in the cookies of a request; empty if there is none."""
    text = headers.get("cookie", "")
    if not text or len(text) > _MAX_COOKIE_BYTES:
        return ""
    try:
        found = SimpleCookie(text).get(f"{COOKIE}_{port}")
    except CookieError:
        return ""
    return found.value if found is not None else ""


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
