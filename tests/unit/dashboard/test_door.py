"""The dashboard's files over HTTP: which path is answered with what, stored how long, and under which policy."""

import asyncio
import gzip
from typing import Any, NamedTuple

import pytest

from headrace.dashboard.door import CONTENT_SECURITY_POLICY, DashboardDoor


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(path: str, method: str = "GET", **headers: str) -> Answer:
    events: list[Any] = []

    async def send(event: Any) -> None:
        events.append(event)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    asked = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": asked}
    asyncio.run(DashboardDoor()(scope, receive, send))
    start, *bodies = events
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(each.get("body", b"") for each in bodies))


def address(name: str) -> str:
    """The path of a file under the digest."""
    page = ask("/ui").text
    start = page.index("/ui/assets/")
    return page[start : page.index("/", start + len("/ui/assets/"))] + "/" + name


@pytest.mark.parametrize("path", ["/ui", "/ui/", "/ui/topics", "/ui/topics/orders/messages", "/ui/groups/a/b"])
def test_every_view_is_the_page(path: str) -> None:
    answer = ask(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert '<div id="app">' in answer.text
    assert answer.headers["cache-control"] == "no-cache"


def test_the_policy_allows_this_broker_only() -> None:
    for path in ("/ui", address("app.js"), address("none.js")):
        headers = ask(path).headers
        assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "default-src 'none'" in CONTENT_SECURITY_POLICY


def test_the_page_has_no_inline_script_or_style() -> None:
    page = ask("/ui").text
    assert "<style" not in page
    assert "style=" not in page
    assert all("src=" in each.partition(">")[0] for each in page.split("<script")[1:])


def test_files_are_stored_for_a_year_under_their_digest() -> None:
    answer = ask(address("app.js"))
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "immutable" in answer.headers["cache-control"]
    other = ask("/ui/assets/0123456789abcdef/app.js")
    assert other.body == answer.body
    assert other.headers["cache-control"] == "no-cache"


def test_what_is_stored_is_not_sent_again() -> None:
    first = ask("/ui")
    second = ask("/ui", if_none_match=first.headers["etag"])
    assert (second.status, second.body) == (304, b"")


def test_text_is_compressed_and_fonts_are_not() -> None:
    path = address("vendor/uplot.js")
    plain, packed = ask(path), ask(path, accept_encoding="gzip, br")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 2
    assert "content-encoding" not in ask(address("vendor/inter.woff2"), accept_encoding="gzip").headers


@pytest.mark.parametrize("name", ["", "none.js", "../door.py", "vendor/README.md", "vendor/htm.LICENSE.txt"])
def test_nothing_else_is_served(name: str) -> None:
    assert ask(address(name)).status == 404


def test_only_reading() -> None:
    answer = ask("/ui", "POST")
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD"
    assert ask("/ui", "HEAD").status == 200
