"""Which application gets a request: by the path, and a browser at the root goes to the dashboard."""

import asyncio

import pytest

from headrace.app.http.doors import HttpDoors
from headrace.app.http.exchange import AsgiApp, AsgiReceive, AsgiScope, AsgiSend

HTML = [(b"accept", b"text/html,application/xhtml+xml")]


def asked(path: str, method: str = "GET", query: bytes = b"", headers: list[tuple[bytes, bytes]] = HTML) -> str:
    reached: list[str] = []

    def door(name: str) -> AsgiApp:
        async def app(scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
            reached.append(name)

        return app

    async def unused(*_: object) -> None:
        raise AssertionError

    doors = HttpDoors({"/ui": door("ui"), "/api/v1": door("api")}, door("queues"), browsers=door("browsers"))
    scope = {"path": path, "method": method, "query_string": query, "headers": headers}
    asyncio.run(doors(scope, unused, unused))  # type: ignore[arg-type]
    (name,) = reached
    return name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/ui", "ui"),
        ("/ui/topics", "ui"),
        ("/uix", "queues"),
        ("/api/v1/users", "api"),
        ("/0/jobs", "queues"),
    ],
)
def test_a_prefix_has_what_is_below_it(path: str, name: str) -> None:
    assert asked(path) == name


def test_a_browser_without_a_path_goes_to_the_dashboard() -> None:
    assert asked("/") == "browsers"


def test_calls_of_queues_at_the_root_stay_there() -> None:
    assert asked("/", method="POST") == "queues"
    assert asked("/", query=b"Action=ListQueues") == "queues"
    assert asked("/", headers=[(b"accept", b"*/*")]) == "queues"
    assert asked("/", headers=[]) == "queues"
