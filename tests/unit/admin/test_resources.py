"""Topics, groups, queues, users and rules over the HTTP API of a real broker: what changes, and what is refused."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.testing import Broker
from tests.waiting import until

from .api import ADMIN, BOB, Account, ApiAnswer, call, secured


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


def done(broker: Broker, method: str, path: str, value: Any = None, account: Account | None = None) -> Any:
    answer = call(broker.http_url, method, path, account, value)
    assert answer.status < 300, answer
    return answer.value


def refused(broker: Broker, method: str, path: str, value: Any = None) -> tuple[int, str]:
    answer = call(broker.http_url, method, path, None, value)
    return answer.status, answer.value["error"]


class TestTopics:
    def test_from_creation_to_deletion(self, broker: Broker) -> None:
        settings = {"retention.ms": "3600000"}
        dry = {"name": "made", "partitions": 3, "settings": settings, "dry_run": True}
        assert done(broker, "POST", "/topics", dry)["partitions"] == 3
        assert refused(broker, "GET", "/topics/made") == (404, "unknown_topic")
        done(broker, "POST", "/topics", {**dry, "dry_run": False})
        assert refused(broker, "POST", "/topics", {"name": "made"}) == (409, "topic_already_exists")
        done(broker, "POST", "/topics/made/partitions", {"count": 5})
        assert refused(broker, "POST", "/topics/made/partitions", {"count": 2})[0] == 400
        detail = done(broker, "GET", "/topics/made")
        assert [each["partition"] for each in detail["partitions"]] == [0, 1, 2, 3, 4]
        found = {each["name"]: each for each in done(broker, "GET", "/topics/made/settings")}
        assert (found["retention.ms"]["value"], found["retention.ms"]["is_default"]) == ("3600000", False)
        assert found["segment.bytes"]["is_default"] is True
        assert found["cleanup.policy"]["doc"]
        changes = {"set": {"cleanup.policy": "compact"}, "reset": ["retention.ms"], "dry_run": True}
        preview = done(broker, "PATCH", "/topics/made/settings", changes)
        assert {each["name"]: (each["before"], each["after"]) for each in preview["changes"]} == {
            "cleanup.policy": ("delete", "compact"),
            "retention.ms": ("3600000", None),
        }
        unchanged = {each["name"]: each["value"] for each in done(broker, "GET", "/topics/made/settings")}
        assert unchanged["cleanup.policy"] == "delete"
        done(broker, "PATCH", "/topics/made/settings", {**changes, "dry_run": False})
        changed = {each["name"]: each["value"] for each in done(broker, "GET", "/topics/made/settings")}
        assert changed["cleanup.policy"] == "compact"
        wrong = {"set": {"cleanup.policy": "burn"}}
        assert refused(broker, "PATCH", "/topics/made/settings", wrong) == (400, "invalid_config")
        done(broker, "DELETE", "/topics/made")
        assert refused(broker, "DELETE", "/topics/made") == (404, "unknown_topic_or_partition")

    def test_lists_are_searched_sorted_and_paged(self, broker: Broker) -> None:
        for number in range(7):
            done(broker, "POST", "/topics", {"name": f"list-{number}", "partitions": number % 3 + 1})
        page = done(broker, "GET", "/topics?search=LIST-&per_page=3&page=2")
        assert ([each["name"] for each in page["items"]], page["total"]) == (["list-3", "list-4", "list-5"], 7)
        page = done(broker, "GET", "/topics?search=list-&sort=partitions&order=desc&per_page=2")
        assert [(each["name"], each["partitions"]) for each in page["items"]] == [("list-2", 3), ("list-5", 3)]
        assert done(broker, "GET", "/topics?search=list-&page=9")["items"] == []
        for query in ("sort=nothing", "per_page=501", "page=0", "order=up", "unknown=1", "per_page=x"):
            assert refused(broker, "GET", f"/topics?{query}") == (400, "invalid_request")

    def test_an_encrypted_topic_is_read_through_the_fetch_path(self) -> None:
        with Broker(settings={"encryption.master.key": b64encode(bytes(32)).decode()}) as broker:
            body = {"name": "secret", "settings": {"encryption.at.rest": "true"}}
            answer: ApiAnswer = call(broker.http_url, "POST", "/topics", None, body)
            assert answer.status == 201, answer
            done(broker, "POST", "/topics/secret/messages", {"value": "hidden"})
            assert done(broker, "GET", "/topics/secret")["is_encrypted"] is True
            assert [each["value"] for each in done(broker, "GET", "/topics/secret/messages")["items"]] == ["hidden"]


class TestGroups:
    def test_a_reset_with_its_preview(self, broker: Broker) -> None:
        done(broker, "POST", "/topics", {"name": "read", "partitions": 2})
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(20):
            producer.produce("read", b"x", partition=number % 2, timestamp=1_700_000_000_000 + number * 1000)
        producer.flush(30)
        group = "team/a b"
        path = "/groups/team%2Fa%20b"
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition("read", 0, 4)], asynchronous=False)

        def reset(to: str, **more: object) -> list[tuple[int, int | None, int]]:
            found = done(broker, "POST", f"{path}/reset", {"to": to, "dry_run": True, **more})
            return [(each["partition"], each["before"], each["after"]) for each in found]

        assert reset("earliest") == [(0, 4, 0)]
        assert reset("latest", topics=["read"]) == [(0, 4, 10), (1, None, 10)]
        assert reset("shift:-1") == [(0, 4, 3)]
        assert reset("shift:+100") == [(0, 4, 10)]
        assert reset("offset:7", partitions=[["read", 1]]) == [(1, None, 7)]
        assert reset("time:2023-11-14T22:13:30Z") == [(0, 4, 5)]
        assert reset("time:1700000010000") == [(0, 4, 5)]
        for wrong in ({"to": "sometime"}, {"to": "offset:-1"}, {}, {"to": "latest", "topics": "read"}):
            assert refused(broker, "POST", f"{path}/reset", wrong) == (400, "invalid_request")
        assert refused(broker, "POST", "/groups/none/reset", {"to": "latest"}) == (404, "unknown_group")
        missing = {"to": "latest", "topics": ["none"]}
        assert refused(broker, "POST", f"{path}/reset", missing) == (404, "unknown_topic")
        done(broker, "POST", f"{path}/reset", {"to": "offset:9"})
        assert consumer.committed([TopicPartition("read", 0)], 30)[0].offset == 9
        detail = until(lambda: self._at(broker, path, 9), "the new position")
        assert detail["partitions"][0]["lag_messages"] == 1
        consumer.subscribe(["read"])
        until(lambda: consumer.poll(0.1) is not None and done(broker, "GET", path)["members"], "a member")
        assert refused(broker, "POST", f"{path}/reset", {"to": "earliest"}) == (409, "non_empty_group")
        assert refused(broker, "DELETE", path) == (409, "non_empty_group")
        consumer.close()
        until(lambda: call(broker.http_url, "DELETE", path).status == 204, "the group to be empty")
        assert refused(broker, "DELETE", path) == (404, "group_id_not_found")

    def _at(self, broker: Broker, path: str, offset: int) -> Any:
        detail = done(broker, "GET", path)
        return detail if detail["partitions"] and detail["partitions"][0]["committed"] == offset else None


class TestQueues:
    def test_peeking_changes_nothing(self, broker: Broker) -> None:
        done(broker, "POST", "/queues", {"name": "peeked"})
        for number in range(5):
            done(broker, "POST", "/queues/peeked/messages", {"body": f'{{"n": {number}}}', "priority": number})
        done(broker, "POST", "/queues/peeked/messages", {"body": "later", "delay_ms": 3_600_000})
        for _ in range(3):
            page = done(broker, "GET", "/queues/peeked/messages?limit=3")
            assert [each["attempts"] for each in page["items"]] == [0, 0, 0]
            assert page["items"][0]["body"] == '{\n  "n": 0\n}'
            rest = done(broker, "GET", f"/queues/peeked/messages?after={page['next']}")
            assert (len(rest["items"]), rest["next"]) == (3, None)
        (delayed,) = done(broker, "GET", "/queues/peeked/messages?state=delayed")["items"]
        assert (delayed["body"], delayed["state"]) == ("later", "delayed")
        assert delayed["until_ms"] > delayed["sent_ms"]
        found = until(lambda: self._counted(broker, "peeked"), "counts")
        assert (found["visible"], found["in_flight"], found["delayed"]) == (5, 0, 1)
        done(broker, "POST", "/queues/peeked/purge")
        assert refused(broker, "POST", "/queues/peeked/purge") == (409, "purge_in_progress")

    def _counted(self, broker: Broker, name: str) -> Any:
        found = done(broker, "GET", f"/queues/{name}")
        return found if found["delayed"] else None

    def test_a_redrive_with_progress(self, broker: Broker) -> None:
        done(broker, "POST", "/queues", {"name": "letters"})
        done(
            broker,
            "POST",
            "/queues",
            {"name": "work", "settings": {"queue.dead.letter": "letters", "max.receives": "1"}},
        )
        for number in range(30):
            done(broker, "POST", "/queues/letters/messages", {"body": f"{number}"})
        task = done(broker, "POST", "/queues/letters/redrive", {"to": "work", "rate": 5})
        assert (task["status"], task["to_move"]) == ("running", 30)
        again = {"to": "work"}
        assert refused(broker, "POST", "/queues/letters/redrive", again) == (409, "redrive_in_progress")
        progress = until(lambda: [each for each in done(broker, "GET", "/queues/letters/redrive") if each["moved"]])
        assert progress[0]["id"] == task["id"]
        done(broker, "DELETE", "/queues/letters/redrive")
        until(lambda: done(broker, "GET", "/queues/letters/redrive")[0]["status"] == "cancelled", "the end")
        assert refused(broker, "DELETE", "/queues/letters/redrive") == (409, "no_redrive")
        done(broker, "POST", "/queues/letters/redrive", {"to": "work"})
        until(lambda: len(done(broker, "GET", "/queues/work/messages?limit=100")["items"]) == 30, "all messages")
        assert refused(broker, "POST", "/queues/work/redrive", {}) == (409, "no_dead_letter_queue")
        assert refused(broker, "POST", "/queues/letters/redrive", {"to": "letters"}) == (400, "invalid_request")
        assert refused(broker, "DELETE", "/queues/letters") == (409, "in_use")

    def test_fifo_and_settings(self, broker: Broker) -> None:
        made = done(broker, "POST", "/queues", {"name": "ordered.fifo"})
        assert made["fifo"] is True
        path = "/queues/ordered.fifo/messages"
        assert refused(broker, "POST", path, {"body": "x"}) == (400, "invalid_request")
        first = done(broker, "POST", path, {"body": "x", "group": "a", "dedupe": "1"})
        assert done(broker, "POST", path, {"body": "x", "group": "a", "dedupe": "1"})["id"] == first["id"]
        settings = "/queues/ordered.fifo/settings"
        changed = done(broker, "PATCH", settings, {"set": {"visibility.timeout.ms": "1000"}, "dry_run": True})
        assert changed["changes"][0]["before"] == "30000"
        assert refused(broker, "PATCH", settings, {"set": {"visibility.timeout.ms": "-1"}, "dry_run": True})[0] == 409
        assert refused(broker, "PATCH", settings, {"set": {"attributes": "{}"}})[0] == 409
        assert refused(broker, "PATCH", settings, {"set": {"type": "standard"}})[0] == 409
        done(broker, "PATCH", settings, {"set": {"queue.visibility.timeout.ms": "1000"}})
        found = {each["name"]: each["value"] for each in done(broker, "GET", "/queues/ordered.fifo")["settings"]}
        assert found["queue.visibility.timeout.ms"] == "1000"
        assert refused(broker, "GET", "/queues/none") == (404, "unknown_queue")


def test_rules_users_and_the_audit_log(monkeypatch: pytest.MonkeyPatch) -> None:
    with secured(monkeypatch) as broker:

        def allowed() -> bool:
            found = done(broker, "GET", "/acls/explain?user=bob&operation=read&resource=topic&name=orders", None, ADMIN)
            return bool(found["allowed"])

        done(broker, "POST", "/topics", {"name": "orders"}, ADMIN)
        assert call(broker.http_url, "GET", "/topics/orders/messages", BOB).status == 403
        assert not allowed()
        rule = {
            "principal": "User:bob",
            "permission": "allow",
            "operation": "read",
            "resource_type": "topic",
            "resource_name": "ord",
            "pattern_type": "prefixed",
        }
        assert done(broker, "POST", "/acls", {"rules": [rule]}, ADMIN) == {"rules": 1}
        assert allowed()
        assert call(broker.http_url, "GET", "/topics/orders/messages", BOB).status == 200
        assert [each["name"] for each in done(broker, "GET", "/topics", None, BOB)["items"]] == ["orders"]
        listed = done(broker, "GET", "/acls?principal=bob", None, ADMIN)
        assert listed["items"] == [{**rule, "host": "*"}]
        assert done(broker, "DELETE", "/acls", {"rules": [rule]}, ADMIN) == {"rules": 1}
        assert done(broker, "DELETE", "/acls", {"rules": [rule]}, ADMIN) == {"rules": 0}
        assert call(broker.http_url, "GET", "/topics/orders/messages", BOB).status == 403
        wrong = {**rule, "operation": "cluster_action"}
        assert call(broker.http_url, "POST", "/acls", ADMIN, {"rules": [wrong]}).status == 400
        done(broker, "POST", "/users", {"name": "dave", "password": "first"}, ADMIN)
        assert call(broker.http_url, "POST", "/users", ADMIN, {"name": "dave", "password": "x"}).status == 409
        assert call(broker.http_url, "GET", "/topics", ("dave", "first")).status == 200
        events = until(lambda: _events(broker, "?principal=bob&outcome=denied"), "the denials")
        assert events[0]["resource_name"] == "orders"
        recorded = {"CreateTopics", "CreateAcls", "DeleteAcls", "POST /api/v1/users"}
        until(lambda: recorded <= {each["action"] for each in _events(broker, "?event=admin")}, "all changes")
        assert "first" not in str(_events(broker, ""))


def _events(broker: Broker, query: str) -> Any:
    return done(broker, "GET", f"/audit{query}", None, ADMIN)["items"]
