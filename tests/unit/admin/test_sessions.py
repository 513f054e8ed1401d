"""Sessions of browsers: cookies, CSRF tokens, their end; and read-only mode."""

import pytest

from headrace.admin import sessions
from headrace.admin.sessions import SessionStore
from headrace.model.users import User
from headrace.testing import Broker
from headrace.wire import Cluster, ConfigResource

from .api import ADMIN, BOB, EVE, Account, ApiAnswer, call, secured


class BrowserClient:
    """Keeps the cookie and the token of a session, as a page does."""

    def __init__(self, broker: Broker) -> None:
        self._url = broker.http_url
        self.cookie = ""
        self.csrf = ""

    def log_in(self, account: Account) -> ApiAnswer:
        answer = self.call("POST", "/session", {"user": account[0], "password": account[1]})
        if answer.status == 201:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
            self.csrf = answer.value["csrf"]
        return answer

    def call(self, method: str, path: str, value: object = None, **headers: str) -> ApiAnswer:
        given = {"Cookie": self.cookie, "X-CSRF-Token": self.csrf, "Sec-Fetch-Mode": "cors", **headers}
        return call(self._url, method, path, None, value, headers={name: text for name, text in given.items() if text})


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch):
    with secured(monkeypatch) as one:
        yield one


def test_a_session_from_login_to_logout(broker: Broker) -> None:
    browser = BrowserClient(broker)
    before = browser.call("GET", "/session").value
    assert (before["user"], before["authentication"], before["cluster_id"], before["csrf"]) == (None, True, "", "")
    assert browser.call("GET", "/topics").status == 401
    wrong = browser.log_in((ADMIN[0], "wrong"))
    assert (wrong.status, wrong.value["error"], "www-authenticate" in wrong.headers) == (401, "unauthorized", False)
    answer = browser.log_in(ADMIN)
    attributes = answer.headers["set-cookie"].split("; ")[1:]
    assert attributes == ["Path=/", "HttpOnly", "SameSite=Strict"]
    assert answer.value["user"] == ADMIN[0]
    assert answer.value["can"]["alter_cluster"] is True
    assert browser.call("POST", "/topics", {"name": "made-by-page"}).status == 201
    old = browser.cookie
    assert browser.call("DELETE", "/session").status == 204
    browser.cookie = old
    assert browser.call("GET", "/topics").status == 401


def test_a_change_needs_the_token_and_the_same_origin(broker: Broker) -> None:
    browser = BrowserClient(broker)
    browser.log_in(ADMIN)
    for csrf in ("", "wrong", "ü"):
        refused = browser.call(
            "POST", "/topics", {"name": "forged"}, **{"X-CSRF-Token": csrf.encode().decode("latin-1")}
        )
        assert (refused.status, refused.value["error"]) == (403, "csrf")
    for name, value in (("Origin", "https://evil.example.org"), ("Sec-Fetch-Site", "cross-site")):
        refused = browser.call("POST", "/topics", {"name": "forged"}, **{name: value})
        assert (refused.status, refused.value["error"]) == (403, "forbidden")
        # Also with a password, which a browser may send by itself.
        assert call(broker.http_url, "POST", "/topics", ADMIN, {"name": "forged"}, headers={name: value}).status == 403
    assert browser.call("GET", "/topics").value["total"] == 0


def test_sessions_end_with_the_password_and_the_user(broker: Broker) -> None:
    admin, bob, eve = BrowserClient(broker), BrowserClient(broker), BrowserClient(broker)
    for browser, account in ((admin, ADMIN), (bob, BOB), (eve, EVE)):
        assert browser.log_in(account).status == 201
    assert bob.call("PUT", "/users/bob/password", {"password": "another"}).status == 204
    assert bob.call("GET", "/topics").status == 401
    assert bob.log_in(("bob", "another")).status == 201
    assert admin.call("DELETE", "/users/eve").status == 204
    assert eve.call("GET", "/topics").status == 401
    assert admin.call("GET", "/topics").status == 200


def test_read_only_mode(broker: Broker) -> None:
    browser = BrowserClient(broker)
    browser.log_in(ADMIN)
    assert browser.call("PATCH", "/cluster/settings", {"set": {"dashboard.read.only": "true"}}).status == 200
    refused = browser.call("POST", "/topics", {"name": "new"})
    assert (refused.status, refused.value["error"]) == (403, "read_only")
    assert browser.call("GET", "/session").value["read_only"] is True
    assert browser.call("DELETE", "/session").status == 204
    assert browser.log_in(ADMIN).status == 201
    assert browser.call("PATCH", "/cluster/settings", {"reset": ["dashboard.read.only"]}).status == 403


def test_a_script_gets_no_challenge_and_a_person_does(broker: Broker) -> None:
    url = broker.http_url
    assert "www-authenticate" in call(url, "GET", "/topics").headers
    assert "www-authenticate" in call(url, "GET", "/topics", headers={"Sec-Fetch-Mode": "navigate"}).headers
    assert "www-authenticate" not in call(url, "GET", "/topics", headers={"Sec-Fetch-Mode": "cors"}).headers


@pytest.mark.parametrize("cookie", ["headrace_session_1=x", "a=b; c", "headrace_session_=;;;", "x" * 5000, '"\\"'])
def test_strange_cookies_are_no_session(broker: Broker, cookie: str) -> None:
    assert call(broker.http_url, "GET", "/topics", headers={"Cookie": cookie}).status == 401


def test_without_authorization_there_is_no_login() -> None:
    with Broker() as broker:
        found = call(broker.http_url, "GET", "/session").value
        assert (found["user"], found["authentication"]) == (None, False)
        assert found["can"]["alter_cluster"] is True
        assert found["cluster_id"]


def test_an_open_broker_serves_other_machines_and_no_other_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(settings={"insecure": True}) as broker, monkeypatch.context() as patch:
        patch.setattr("headrace.admin.login.is_loopback", lambda host: False)
        assert call(broker.http_url, "GET", "/topics", headers={"Host": "192.168.1.5:9324"}).status == 200
        assert call(broker.http_url, "GET", "/topics", headers={"Host": "headrace:9324"}).status == 200
        assert call(broker.http_url, "GET", "/topics", headers={"Host": "evil.example.org:9324"}).status == 403
        assert call(broker.http_url, "GET", "/topics", ADMIN, headers={"Host": "headrace:9324"}).status == 403
        with Cluster(broker.bootstrap) as cluster:
            cluster.alter_settings(ConfigResource.BROKER, "", {"authorization.enable": "true"})
        assert call(broker.http_url, "GET", "/topics", headers={"Host": "headrace:9324"}).status == 403


class TestStore:
    def test_idle_and_absolute_expiry(self) -> None:
        now_ms = 0.0
        users = {"bob": User("bob")}
        store = SessionStore(lambda: now_ms, users.get, lambda: 100, lambda: 250)
        session = store.begin(users["bob"])
        for later_ms in (90.0, 180.0, 240.0):
            now_ms = later_ms
            assert store.find(session.session_id) is session
        now_ms = 251.0
        assert store.find(session.session_id) is None
        session = store.begin(users["bob"])
        now_ms = 352.0
        assert store.find(session.session_id) is None
        assert len(store) == 0

    def test_the_number_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sessions, "MAX_SESSIONS", 30)
        users = {f"user-{number}": User(f"user-{number}") for number in range(40)}
        now_ms = 0.0
        store = SessionStore(lambda: now_ms, users.get, lambda: 1000, lambda: 1000)
        first = [store.begin(users["user-0"]) for _ in range(sessions.MAX_PER_USER + 5)]
        assert len(store) == sessions.MAX_PER_USER
        assert store.find(first[-1].session_id) is not None
        assert store.find(first[0].session_id) is None
        for user in users.values():
            now_ms += 1
            newest = store.begin(user)
        assert len(store) == 30
        assert store.find(newest.session_id) is newest

    def test_ids_are_random_and_not_shown(self) -> None:
        store = SessionStore(lambda: 0, lambda _: None, lambda: 1, lambda: 1)
        made = [store.begin(User("bob")) for _ in range(10)]
        assert len({each.session_id for each in made} | {each.csrf for each in made}) == 20
        assert all(len(each.session_id) == 43 for each in made)
        assert made[0].session_id not in repr(made[0])
        assert made[0].csrf not in repr(made[0])
