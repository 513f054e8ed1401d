"""What a process tells its pool about the application."""

from headrace import Client
from headrace.client.base import parts_of
from headrace.client.work.child import most_processes, sources_of
from headrace.client.work.messages import WorkSource


def test_queues_and_groups_are_the_sources() -> None:
    client = Client()
    for topic in ("orders", "returns"):
        client.handler(topic, group="billing", start="latest")(print)
    client.queue("emails").worker()(print)
    client.every("1 hour", name="tidy")(print)
    assert list(sources_of(parts_of(client)).values()) == [
        WorkSource("group", "billing", ["orders", "returns"], "latest"),
        WorkSource("queue", "emails"),
    ]
    assert most_processes(parts_of(client)) == (None, "")


def test_a_transactional_id_is_for_one_process() -> None:
    client = Client()
    client.handler("orders", group="billing", delivery="exactly-once", transactional_id="billing-1")(print)
    count, reason = most_processes(parts_of(client))
    assert count == 1
    assert "billing-1" in reason
