"""A token provider: keys, the tokens they sign, and an HTTP server with the key set."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt import PyJWS
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from headrace.security.sasl.jwks import KeySet, read_key_set

ISSUER = "https://issuer.example"
AUDIENCE = "headrace"

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())

PRIVATE_KEYS: dict[str, Any] = {"rsa": RSA_KEY, "ec": EC_KEY, "ed": ED_KEY}
PUBLIC_KEYS: list[dict[str, Any]] = [
    {**RSAAlgorithm.to_jwk(RSA_KEY.public_key(), as_dict=True), "kid": "rsa", "use": "sig"},
    {**ECAlgorithm.to_jwk(EC_KEY.public_key(), as_dict=True), "kid": "ec", "alg": "ES256"},
    {**OKPAlgorithm.to_jwk(ED_KEY.public_key(), as_dict=True), "kid": "ed"},
]
DOCUMENT = json.dumps({"keys": PUBLIC_KEYS}).encode()
KEYS: KeySet = read_key_set(DOCUMENT)


def claims(**changes: Any) -> dict[str, Any]:
    """The claims of a good token; None as a value leaves one out."""
    now = int(time.time())
    good = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600, "scope": "read write"}
    return {name: value for name, value in (good | changes).items() if value is not None}


def token(
    payload: dict[str, Any] | None = None,
    *,
    key: Any = EC_KEY,
    algorithm: str = "ES256",
    headers: dict[str, Any] | None = None,
) -> str:
    content = json.dumps(claims() if payload is None else payload).encode()
    return PyJWS().encode(content, key, algorithm, headers if headers is not None else {"kid": "ec"})


class Provider:
    """What the server answers next, and how often it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.document = DOCUMENT
        self.headers: dict[str, str] = {}
        self.paths: list[str] = []
        self.times: list[float] = []
        self.port = 0
        self._asked = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/keys"

    def note(self, path: str) -> None:
        with self._asked:
            self.times.append(time.monotonic())
            self.paths.append(path)
            self._asked.notify_all()

    def wait_for_requests(self, count: int, timeout_s: float = 20.0) -> None:
        with self._asked:
            assert self._asked.wait_for(lambda: len(self.paths) >= count, timeout_s), self.paths


@contextmanager
def running_provider() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers = provider.status, provider.headers
            if self.path == "/moved":
                status, headers = 200, {}
            provider.note(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(provider.document)))
            self.end_headers()
            self.wfile.write(provider.document)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
