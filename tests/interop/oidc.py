"""An OpenID Connect provider on loopback: it has keys, and gives tokens to clients that know their secret."""

import json
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.unit.security.sasl.provider import AUDIENCE, DOCUMENT, ISSUER, claims, token

KEYS_PATH, TOKEN_PATH = "/keys", "/token"
TOKEN_LIFETIME_S = 600


class OidcProvider:
    def __init__(self, port: int, secrets: dict[str, str]) -> None:
        self.secrets = secrets
        """Of clients, by their ids: a token is for the user of that name."""
        self.issued: list[str] = []
        """To whom tokens were given."""
        self._url = f"http://127.0.0.1:{port}"

    @property
    def token_url(self) -> str:
        return self._url + TOKEN_PATH

    @property
    def broker_settings(self) -> dict[str, str]:
        """The settings of a broker that accepts its tokens."""
        return {
            "sasl.oauthbearer.jwks.endpoint.url": self._url + KEYS_PATH,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }

    def token(self, user: str, **changes: Any) -> str:
        return token(claims(sub=user, **changes))

    def answer(self, authorization: str) -> tuple[int, dict[str, Any]]:
        """The answer to a request for a token with HTTP's basic authentication."""
        user, _, secret = b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if self.secrets.get(user) != secret:
            return 401, {"error": "invalid_client"}
        self.issued.append(user)
        return 200, {"access_token": self.token(user), "token_type": "Bearer", "expires_in": TOKEN_LIFETIME_S}


@contextmanager
def running_oidc_provider(secrets: dict[str, str]) -> Iterator[OidcProvider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200 if self.path == KEYS_PATH else 404, DOCUMENT)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            status, answer = provider.answer(self.headers.get("Authorization", ""))
            self._send(status, json.dumps(answer).encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider = OidcProvider(server.server_address[1], secrets)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
