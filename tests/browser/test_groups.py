"""Groups in the browser: lag in messages and seconds, members, and resetting offsets with a preview."""

from confluent_kafka import Consumer
from playwright.sync_api import expect

from headrace.testing.process import BrokerProcess
from tests.waiting import until

from . import sample
from .tab import Tab


def test_offsets_are_reset_as_the_preview_says(tab: Tab, broker: BrokerProcess) -> None:
    sample.create_topics(broker, {"reset-here": 1})
    sample.produce_orders(broker, 20, "reset-here")
    sample.commit(broker, "reset-group", {("reset-here", 0): 15})
    page = tab.open("/ui/groups/reset-group")
    expect(page.locator("tbody tr").first).to_contain_text("15")
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("tbody tr[role=row]")).to_contain_text("15 again")
    dialog.get_by_label("To", exact=True).select_option("Forward or back by")
    dialog.get_by_label("Messages").fill("-4")
    expect(dialog.locator("tbody tr[role=row]")).to_contain_text("11")
    expect(dialog.locator("tbody tr[role=row]")).to_contain_text("4 again")
    dialog.get_by_role("button", name="Reset 1 partition").click()
    expect(page.get_by_text("Reset the offsets of reset-group in 1 partition.")).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text("11")
    expect(page.locator("tbody tr").first).to_contain_text("9")


def test_members_show_their_assignment_and_prevent_a_reset(tab: Tab, broker: BrokerProcess) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "with-members", "client.id": "worker-7"})
    try:
        consumer.subscribe(["orders"])
        until(lambda: consumer.poll(0.1) is not None or consumer.assignment(), "an assignment")
        page = tab.open("/ui/groups/with-members/members")
        expect(page.locator("tbody tr")).to_contain_text("worker-7")
        expect(page.locator("tbody tr")).to_contain_text("0\u20132")
        page.get_by_role("button", name="Reset offsets").click()
        expect(page.get_by_role("dialog")).to_contain_text("stop its consumers first")
    finally:
        consumer.close()


def test_lag_follows_without_a_reload(tab: Tab, broker: BrokerProcess) -> None:
    sample.create_topics(broker, {"lagging": 1})
    sample.produce_orders(broker, 5, "lagging")
    sample.commit(broker, "lag-group", {("lagging", 0): 5})
    page = tab.open("/ui/groups/lag-group")
    lag = page.locator(".stat").nth(1)
    expect(lag).to_contain_text("0")
    page.evaluate("window.sameDocument = true")
    sample.produce_orders(broker, 7, "lagging")
    expect(lag).to_contain_text("7")
    sample.commit(broker, "lag-group", {("lagging", 0): 12})
    expect(lag).to_contain_text("0")
    assert page.evaluate("window.sameDocument") is True
