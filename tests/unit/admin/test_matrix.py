"""Every route of the HTTP API without credentials, with wrong ones, without permission and with it."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.routing import Route

from headrace.admin.door import admin_door
from headrace.admin.reference import with_table
from headrace.admin.resources import ALL_ROUTES
from headrace.admin.routes import PREFIX, Access, AdminHandler, AdminRoute, RouteNeed, route
from headrace.model.users import ANONYMOUS
from headrace.testing import Broker

from .api import ADMIN, BOB, EVE, Account, ApiAnswer, call, secured
from .route_cases import CASES, RouteCase, prepare

CHECKED = [each for each in ALL_ROUTES if each.needs.access is Access.CHECKED]
SHOWN = [each for each in ALL_ROUTES if each.needs.access is Access.SHOWN]
NEED_LOGIN = [each for each in ALL_ROUTES if each.needs.access is not Access.OPEN]
DONE = (200, 201, 202, 204)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # Clients of Kafka stay anonymous, and prepare what requests are about.
    settings = {"super.users": ANONYMOUS, "connection.failed.authentication.delay.ms": 0}
    with pytest.MonkeyPatch.context() as patch, secured(patch, prepare, **settings) as one:
        yield one


def names(each: AdminRoute) -> str:
    return f"{each.method} {each.plain_path}"


def request(broker: Broker, each: AdminRoute, account: Account | None, *, is_missing: bool = False) -> ApiAnswer:
    case = CASES[names(each)]
    parameters = dict(case.parameters)
    if case.before is not None and not is_missing:
        parameters |= case.before(broker) or {}
    if is_missing:
        parameters = dict.fromkeys(parameters, "missing")
    path = re.sub(r"\{(\w+)(:path)?\}", lambda found: quote(parameters[found[1]], safe=""), each.path)
    return call(broker.http_url, each.method, path + case.query, account, case.body, max_bytes=case.max_bytes)


def test_every_route_has_a_case() -> None:
    assert CASES.keys() == {names(each) for each in ALL_ROUTES}
    assert all(isinstance(each, RouteCase) for each in CASES.values())


@pytest.mark.parametrize("each", NEED_LOGIN, ids=names)
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

    def test_with_permission(self, broker: Broker, each: AdminRoute) -> None:
        answer = request(broker, each, ADMIN)
        if refusal := CASES[names(each)].refusal:
            assert answer.value["error"] == refusal
            return
        assert answer.status in DONE, answer
        assert answer.headers["x-content-type-options"] == "nosniff"
        if answer.status != 204:
            assert answer.headers["content-type"].partition(";")[0] == each.media_type

    def test_without_permission(self, broker: Broker, each: AdminRoute) -> None:
        answer = request(broker, each, BOB)
        if each.needs.access is Access.SHOWN:
            assert answer.status == 200, answer
            return
        assert (answer.status, answer.value["error"]) == (403, "forbidden")
        if each.needs.access is Access.CHECKED:
            assert each.needs.operation.name.lower() in answer.value["message"]

    def test_ones_own(self, broker: Broker, each: AdminRoute) -> None:
        answer = request(broker, each, EVE)
        if each.needs.access is Access.CHECKED:
            assert answer.status in (DONE if each.owner else (403,))


@pytest.mark.parametrize("each", [each for each in CHECKED if "{" in each.path], ids=names)
def test_whether_something_exists_is_not_shown_without_permission(broker: Broker, each: AdminRoute) -> None:
    assert request(broker, each, BOB, is_missing=True).status == 403


@pytest.mark.parametrize("each", SHOWN, ids=names)
def test_lists_leave_out_what_a_user_may_not_see(broker: Broker, each: AdminRoute) -> None:
    everything, nothing = request(broker, each, ADMIN), request(broker, each, BOB)
    counted = CASES[names(each)].count
    assert counted(everything.value) > 0
    assert counted(nothing.value) == 0


def test_all_routes_are_in_the_table() -> None:
    app = admin_door(None)  # type: ignore[arg-type]
    served = {
        (method, each.path)
        for each in app.routes
        if isinstance(each, Route)
        for method in (each.methods or set()) - {"HEAD"}
    }
    assert served == {(each.method, PREFIX + each.path) for each in ALL_ROUTES}
    assert len(ALL_ROUTES) == len(app.routes) == len(set(map(names, ALL_ROUTES)))
    assert all(isinstance(each.needs, RouteNeed) for each in ALL_ROUTES)


def test_the_table_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "api-http.md").read_text()
    documented = dict(re.findall(r"^\| `((?:[A-Z]+) /api/v1\S*)` \|.*\| (.*) \|$", page, re.MULTILINE))
    path = {f"{each.method} {PREFIX}{each.plain_path}": each for each in ALL_ROUTES}
    assert documented.keys() == path.keys()
    for name, each in path.items():
        assert documented[name].startswith(str(each.needs)), name
        assert ("own" in documented[name]) is bool(each.owner)


def test_a_route_without_a_permission_does_not_register() -> None:
    handler: AdminHandler = None  # type: ignore[assignment]
    with pytest.raises(TypeError, match="needs"):
        route("GET", "/new")(handler)  # type: ignore[call-arg]


def test_the_table_in_the_documentation_is_generated() -> None:
    page = (Path(__file__).parents[3] / "docs" / "api-http.md").read_text()
    assert with_table(page) == page, "run make docs"
