"""Every route of the HTTP API without credentials, with wrong ones, without permission and with it."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.routing import Route

from headrace.admin.door import admin_door
from headrace.admin.routes import PREFIX, ROUTES, AdminHandler, AdminRoute, RouteNeed, route
from headrace.testing import Broker

from .api import ADMIN, BOB, EVE, Account, ApiAnswer, call, secured

BODIES = {"/secure": {"admin": ADMIN[0], "password": ADMIN[1]}}
"""A valid body for each route that reads one."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with pytest.MonkeyPatch.context() as patch, secured(patch) as one:
        yield one


def names(each: AdminRoute) -> str:
    return f"{each.method} {each.path}"


def request(broker: Broker, each: AdminRoute, account: Account | None, name: str = EVE[0]) -> ApiAnswer:
    key_id = "none"
    if "{id}" in each.path:
        made = call(broker.http_url, "POST", f"/users/{name}/keys", ADMIN)
        assert made.status == 201, made
        key_id = made.value["id"]
    path = re.sub(r"\{name(:path)?\}", name, each.path).replace("{id}", key_id)
    try:
        return call(broker.http_url, each.method, path, account, BODIES.get(each.path))
    finally:
        for key in call(broker.http_url, "GET", f"/users/{name}/keys", ADMIN).value["keys"]:
            call(broker.http_url, "DELETE", f"/users/{name}/keys/{key['id']}", ADMIN)


@pytest.mark.parametrize("each", ROUTES, ids=names)
class TestEveryRoute:
    def test_without_credentials(self, broker: Broker, each: AdminRoute) -> None:
        answer = request(broker, each, None)
        assert (answer.status, answer.value["error"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Basic ")

    def test_with_a_wrong_password(self, broker: Broker, each: AdminRoute) -> None:
        wrong = request(broker, each, (ADMIN[0], "wrong"))
        unknown = request(broker, each, ("nobody", "wrong"))
        assert (wrong.status, wrong.value["error"]) == (401, "unauthorized")
        assert wrong.value == unknown.value

    def test_without_permission(self, broker: Broker, each: AdminRoute) -> None:
        answer = request(broker, each, BOB)
        assert (answer.status, answer.value["error"]) == (403, "forbidden")
        assert each.needs.operation.name.lower() in answer.value["message"]

    def test_with_permission(self, broker: Broker, each: AdminRoute) -> None:
        assert request(broker, each, ADMIN).status in (200, 201, 204)

    def test_ones_own(self, broker: Broker, each: AdminRoute) -> None:
        answer = request(broker, each, EVE)
        assert answer.status in ((200, 201, 204) if each.owner else (403,))


@pytest.mark.parametrize("each", [each for each in ROUTES if "{name" in each.path], ids=names)
def test_whether_a_user_exists_is_not_shown_without_permission(broker: Broker, each: AdminRoute) -> None:
    path = re.sub(r"\{name(:path)?\}", "nobody", each.path).replace("{id}", "none")
    asked: Callable[[Account], ApiAnswer] = lambda account: call(broker.http_url, each.method, path, account)  # noqa: E731
    assert asked(BOB).status == 403
    assert asked(ADMIN).status == 404


def test_all_routes_are_in_the_table() -> None:
    app = admin_door(None)  # type: ignore[arg-type]
    served = {
        (method, each.path)
        for each in app.routes
        if isinstance(each, Route)
        for method in (each.methods or set()) - {"HEAD"}
    }
    assert served == {(each.method, PREFIX + each.path) for each in ROUTES}
    assert len(ROUTES) == len(app.routes) == len(set(map(names, ROUTES)))
    assert all(isinstance(each.needs, RouteNeed) for each in ROUTES)


def test_the_table_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
    documented = dict(re.findall(r"^\| `((?:GET|POST|DELETE) /api/v1\S*)` \|.*\| (.*) \|$", page, re.MULTILINE))
    path = {f"{each.method} {PREFIX}{each.path.replace(':path', '')}": each for each in ROUTES}
    assert documented.keys() == path.keys()
    for name, each in path.items():
        assert documented[name].startswith(f"{each.needs.operation.name} on the cluster")
        assert ("own" in documented[name]) is bool(each.owner)
        assert ("no users" in documented[name]) is each.is_open_without_users


def test_a_route_without_a_permission_does_not_register() -> None:
    handler: AdminHandler = None  # type: ignore[assignment]
    with pytest.raises(TypeError, match="needs"):
        route("GET", "/new")(handler)  # type: ignore[call-arg]
