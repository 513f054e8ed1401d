"""A Kafka client for attacks: any bytes at any stage of TLS and SASL, from any loopback address."""

import socket
import ssl
from typing import Any

from headrace.security.sasl.client import ClientExchange, client_exchange
from headrace.testing import Broker
from tests.interop.raw_client import SASL_AUTHENTICATE, SASL_HANDSHAKE, Connection, Error

TIMEOUT_S = 30.0
PASSWORD = "correct horse"


def trusting(broker: Broker) -> ssl.SSLContext:
    """A client's context that trusts the broker."""
    return ssl.create_default_context(cafile=str(broker.ca_file))


class Client(Connection):
    """A connection over TCP, or over TLS with a context."""

    def __init__(self, bootstrap: str, tls: ssl.SSLContext | None = None, source: str = "127.0.0.1") -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._client_id = "test"
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S, (source, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            try:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
            except BaseException:
                self._socket.close()
                raise

    @property
    def raw_socket(self) -> socket.socket:
        return self._socket

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        return self.call(SASL_HANDSHAKE, version, mechanism=mechanism)

    def authenticate(self, token: bytes, version: int = 2) -> Any:
        return self.call(SASL_AUTHENTICATE, version, auth_bytes=token)

    def log_in(self, mechanism: str, user: str = "alice", password: str = PASSWORD) -> Any:
        """The last answer to a login with a password, good or bad."""
        return self.exchange(mechanism, client_exchange(mechanism, user=user, password=password))

    def exchange(self, mechanism: str, client: ClientExchange) -> Any:
        handshake = self.handshake(mechanism)
        assert handshake.error_code == Error.none, handshake
        token: bytes | None = client.first()
        while True:
            assert token is not None
            answer = self.authenticate(token)
            if answer.error_code != Error.none:
                return answer
            token = client.next(answer.auth_bytes)
            if token is None:
                return answer
