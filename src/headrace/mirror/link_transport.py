"""Connections to a source cluster: TLS and the login as the link says.

The password and the certificates are read when the first connection is opened, and again after a connection could not
be, so that a changed password needs no restart. Files are read in `link.files.dir` only: a user who
may create links chooses where the password is sent, and must not be able to choose any file of the broker.
"""

import asyncio
import os
import ssl
from pathlib import Path

from headrace.model.errors import PeerUnavailable
from headrace.model.image import Endpoint
from headrace.model.links import Link
from headrace.replication.transport import Channel, InterBrokerLogin, TcpTransport

MAX_PASSWORD_BYTES = 4096


class LinkTransport:
    """The transport of one link."""

    def __init__(self, link: Link, files_dir: str = "") -> None:
        """`files_dir` has the files that the link names."""
        self._link = link
        self._files_dir = files_dir
        self._transport: TcpTransport | None = None

    async def connect(self, endpoint: Endpoint) -> Channel:
        """Open a connection, or raise `PeerUnavailable`."""
        try:
            if self._transport is None:
                self._transport = await asyncio.to_thread(self._prepared)
            return await self._transport.connect(endpoint)
        except PeerUnavailable:
            self._transport = None
            raise

    def _prepared(self) -> TcpTransport:
        link = self._link
        login = InterBrokerLogin(link.mechanism, link.user, self._password()) if link.user else None
        return TcpTransport(tls=self._tls() if link.tls else None, login=login)

    def _password(self) -> str:
        link = self._link
        if link.password_env:
            password = os.environ.get(link.password_env, "")
            if not password:
                raise PeerUnavailable(f"this broker has no environment variable {link.password_env} with the password")
            return password
        path = self._path(link.password_file)
        try:
            with path.open("rb") as file:
                content = file.read(MAX_PASSWORD_BYTES + 1)
            if len(content) > MAX_PASSWORD_BYTES:
                raise PeerUnavailable(f"{path} has more than {MAX_PASSWORD_BYTES} bytes: that is no password")
            return content.decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise PeerUnavailable(f"the password cannot be read from {path} on this broker: {error}") from None

    def _tls(self) -> ssl.SSLContext:
        link = self._link
        try:
            context = ssl.create_default_context(cafile=self._path(link.ca_file) if link.ca_file else None)
            if link.cert_file:
                context.load_cert_chain(self._path(link.cert_file), self._path(link.key_file))
        except (OSError, ssl.SSLError) as error:
            raise PeerUnavailable(
                f"the certificates of the link {link.name} cannot be read on this broker: {error}"
            ) from None
        return context

    def _path(self, name: str) -> Path:
        if not self._files_dir:
            raise PeerUnavailable(
                f"the link {self._link.name} names the file {name}, but this broker has no folder for such files: set "
                "link.files.dir"
            )
        # Stored links have plain names: see `check_link`.
        return Path(self._files_dir) / Path(name).name
