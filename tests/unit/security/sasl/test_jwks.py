import itertools
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from headrace.security.sasl.json_fetch import FetchError, JsonUrl, problem_with_url
from headrace.security.sasl.jwks import MISSING_KEYS, Jwks, read_key_set

from .provider import DOCUMENT, EC_KEY, PUBLIC_KEYS, Provider, running_provider


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


@contextmanager
def started(jwks: Jwks) -> Iterator[Jwks]:
    jwks.start()
    try:
        yield jwks
    finally:
        jwks.close()


class Source:
    """Documents without a network: `fail` and `document` say what the next fetch does."""

    def __init__(self) -> None:
        self.document = DOCUMENT
        self.fail = False
        self.count = 0
        self._fetched = threading.Condition()

    def __call__(self) -> bytes:
        with self._fetched:
            self.count += 1
            self._fetched.notify_all()
            if self.fail:
                raise FetchError("out of order")
            return self.document

    def wait_for(self, count: int) -> None:
        with self._fetched:
            assert self._fetched.wait_for(lambda: self.count >= count, 20.0)


def test_keys_are_fetched_at_the_start(provider: Provider) -> None:
    with started(Jwks(JsonUrl(provider.url))) as jwks:
        assert jwks.wait_until_loaded(20.0)
        assert jwks.find("ec") is not None
        assert provider.paths == ["/keys"]


def test_keys_are_refreshed_and_replaced(provider: Provider) -> None:
    with started(Jwks(JsonUrl(provider.url), refresh_ms=50)) as jwks:
        assert jwks.wait_until_loaded(20.0)
        provider.document = json.dumps({"keys": PUBLIC_KEYS[:1]}).encode()
        provider.wait_for_requests(len(provider.paths) + 3)
        assert jwks.find("rsa") is not None
        assert jwks.find("ec") is None


@pytest.mark.parametrize("failure", [503, 404, 301])
def test_a_failing_provider_leaves_the_keys_valid(failure: int, provider: Provider) -> None:
    with started(Jwks(JsonUrl(provider.url), refresh_ms=20, retry_backoff_ms=10)) as jwks:
        assert jwks.wait_until_loaded(20.0)
        provider.headers = {"Location": "http://localhost:1/keys"}
        provider.status = failure
        provider.wait_for_requests(len(provider.paths) + 3)
        assert jwks.find("ec") is not None


@pytest.mark.parametrize("document", [b"", b"[]", b'{"keys": []}', b'{"keys": 7}', b"{", b'{"keys": [7, {}]}'])
def test_a_document_without_keys_leaves_the_keys_valid(document: bytes) -> None:
    source = Source()
    with started(Jwks(source, refresh_ms=20, retry_backoff_ms=10)) as jwks:
        assert jwks.wait_until_loaded(20.0)
        source.document = document
        source.wait_for(source.count + 3)
        assert jwks.find("ec") is not None


def test_a_provider_that_comes_late_is_found(caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    source.fail = True
    with caplog.at_level(logging.WARNING), started(Jwks(source, retry_backoff_ms=10)) as jwks:
        source.wait_for(3)
        assert jwks.find("ec") is None
        source.fail = False
        assert jwks.wait_until_loaded(20.0)
    assert "out of order" in caplog.text


def test_a_storm_of_unknown_key_ids_does_one_fetch(provider: Provider) -> None:
    with started(Jwks(JsonUrl(provider.url))) as jwks:
        assert jwks.wait_until_loaded(20.0)
        threads = [
            threading.Thread(target=lambda first=first: [jwks.find(f"{first}-{each}") for each in range(2000)])
            for first in range(4)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(provider.paths) == 1, "the next fetch comes ten seconds after the last"
        assert len(jwks._missing) <= MISSING_KEYS


def test_a_storm_that_goes_on_fetches_with_pauses(provider: Provider) -> None:
    with started(Jwks(JsonUrl(provider.url), missing_key_fetch_s=0.2)) as jwks:
        assert jwks.wait_until_loaded(20.0)
        deadline = time.monotonic() + 20.0
        for each in itertools.count():
            jwks.find(f"unknown {each}")
            if len(provider.times) >= 4 or time.monotonic() > deadline:
                break
    assert len(provider.times) >= 4
    assert all(later - earlier >= 0.2 for earlier, later in itertools.pairwise(provider.times))


def test_an_unknown_key_id_fetches_again_after_the_pause() -> None:
    source, clock = Source(), Clock()
    jwks = Jwks(source, now=clock)
    with started(jwks):
        assert jwks.wait_until_loaded(20.0)
        new = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
        source.document = json.dumps({"keys": [*PUBLIC_KEYS, {**new, "kid": "new"}]}).encode()
        clock.now = 11.0
        assert jwks.find("new") is None
        source.wait_for(2)
        wait_for_key(jwks, "new")
        for each in range(1000):
            jwks.find(f"storm {each}")
        assert source.count == 2


def test_a_key_id_that_stays_missing_asks_once_a_minute() -> None:
    source, clock = Source(), Clock()
    with started(Jwks(source, now=clock)) as jwks:
        assert jwks.wait_until_loaded(20.0)
        for now, count in ((20.0, 2), (40.0, 2), (79.0, 2), (81.0, 3)):
            clock.now = now
            jwks.find("missing")
            jwks.find("missing")
            source.wait_for(count)
            wait_until_idle(jwks)
            assert source.count == count


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def wait_for_key(jwks: Jwks, key_id: str) -> None:
    with jwks._condition:
        assert jwks._condition.wait_for(lambda: jwks._keys.find(key_id) is not None, 20.0)


def wait_until_idle(jwks: Jwks) -> None:
    """Until the fetch that is due, if any, has been noted."""
    with jwks._condition:
        assert jwks._condition.wait_for(lambda: jwks._due > jwks._now(), 20.0)


def without(entry: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in names}


def keys_of(*entries: dict[str, Any]) -> set[str | None]:
    known = PUBLIC_KEYS[0] | {"kid": "known"}
    keys = read_key_set(json.dumps({"keys": [known, *entries]}).encode())
    return {each for each in (None, "other") if keys.find(each) is not None}


def test_keys_that_do_not_verify_signatures_are_ignored() -> None:
    short = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key(), as_dict=True)
    other_curve = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256K1()).public_key(), as_dict=True)
    for entry in (
        PUBLIC_KEYS[0] | {"use": "enc"},
        PUBLIC_KEYS[0] | {"alg": "HS256"},
        PUBLIC_KEYS[0] | {"alg": "none"},
        PUBLIC_KEYS[0] | {"n": "!"},
        {"kty": "oct", "k": "c2VjcmV0"},
        ECAlgorithm.to_jwk(EC_KEY, as_dict=True),
        short,
        other_curve,
    ):
        assert keys_of({**entry, "kid": "other"}) == {None}, entry
    assert "other" in keys_of({**PUBLIC_KEYS[1], "kid": "other"})


def test_a_named_algorithm_is_the_only_one() -> None:
    keys = read_key_set(DOCUMENT)
    assert [key.algorithms for each in ("rsa", "ec") if (key := keys.find(each))] == [
        {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"},
        {"ES256"},
    ]


def test_a_token_without_a_key_id_fits_a_set_of_one_key() -> None:
    one = read_key_set(json.dumps({"keys": [without(PUBLIC_KEYS[1], "kid")]}).encode())
    assert one.find(None) is not None
    assert one.find("ec") is None
    assert read_key_set(DOCUMENT).find(None) is None


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example/keys",
        "http://10.0.0.1/keys",
        "http://169.254.169.254/latest/meta-data",
        "http://localhost.evil.example/keys",
        "http://user@localhost/keys",
        "https://user:secret@issuer.example/keys",
        "file:///etc/passwd",
        "ftp://localhost/keys",
        "data:application/json,{}",
        "https:///keys",
        "https://issuer.example:port/keys",
        "keys",
        "",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    assert problem_with_url(url) is not None
    with pytest.raises(ValueError, match=r"must|no URL"):
        JsonUrl(url)


@pytest.mark.parametrize(
    "url", ["https://issuer.example/keys", "http://localhost:80/", "http://127.0.0.1/", "http://[::1]:8080/keys"]
)
def test_https_and_loopback_are_good(url: str) -> None:
    assert problem_with_url(url) is None


def test_a_redirect_to_elsewhere_is_not_followed(provider: Provider) -> None:
    with running_provider() as elsewhere:
        provider.status = 302
        for target in (elsewhere.url, "file:///etc/passwd", "https://issuer.example/keys", "//localhost:1/keys"):
            provider.headers = {"Location": target}
            with pytest.raises(FetchError):
                JsonUrl(provider.url)()
        assert elsewhere.paths == []


def test_a_redirect_within_the_host_is_followed(provider: Provider) -> None:
    provider.status = 302
    provider.headers = {"Location": "/moved"}
    assert JsonUrl(provider.url)() == DOCUMENT
    assert provider.paths == ["/keys", "/moved"]


def test_a_redirect_in_a_circle_ends(provider: Provider) -> None:
    provider.status = 302
    provider.headers = {"Location": "/keys"}
    with pytest.raises(FetchError):
        JsonUrl(provider.url)()
    assert len(provider.paths) < 10


def test_a_large_answer_is_refused(provider: Provider) -> None:
    provider.document = b" " * 5000
    with pytest.raises(FetchError, match="more than 4096 bytes"):
        JsonUrl(provider.url, max_bytes=4096)()


def test_a_port_without_a_server_is_an_error(provider: Provider) -> None:
    with pytest.raises(FetchError):
        JsonUrl("http://127.0.0.1:1/keys", timeout_s=1.0)()


def test_an_answer_that_does_not_end_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/keys"
        with pytest.raises(FetchError, match="timed out"):
            JsonUrl(url, timeout_s=0.05)()
