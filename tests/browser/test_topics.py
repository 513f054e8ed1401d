"""Topics in the browser: found, created, browsed with filters, tailed, produced to, changed and deleted."""

import json
import re

from playwright.sync_api import expect

from headrace.testing.process import BrokerProcess

from . import sample
from .tab import Tab


def test_the_list_is_searched_and_sorted_by_the_server_and_the_address_has_it(tab: Tab) -> None:
    page = tab.open("/ui/topics")
    page.get_by_role("searchbox", name="Search topics").fill("SHIP")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(f"{tab.base}/ui/topics?search=SHIP")
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody")).to_contain_text("shipments")
    page.get_by_role("searchbox", name="Search topics").fill("")
    page.get_by_role("button", name="Partitions").click()
    expect(page.get_by_role("columnheader", name="Partitions")).to_have_attribute("aria-sort", "descending")
    # Four partitions before three; by name, as before the click, they are the other way round.
    after = page.locator('tbody tr:has(a:text-is("page-views")) ~ tr:has(a:text-is("orders"))')
    expect(after).to_have_count(1)


def test_a_topic_shows_how_far_its_slowest_group_is_behind(tab: Tab) -> None:
    """The group billing of the sample has never read all orders."""
    page = tab.open("/ui/topics/orders")
    behind = page.locator('.stats > div:has(dt:text-is("Most behind"))')
    expect(behind).to_contain_text("group")
    expect(behind).to_contain_text(re.compile(r"[1-9]\d* (s|min)"))


def test_a_topic_is_created_and_deleted(tab: Tab) -> None:
    page = tab.open("/ui/topics")
    page.get_by_role("button", name="Create a topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("no spaces")
    expect(dialog).to_contain_text("Letters, digits, dots")
    dialog.get_by_label("Name").fill("made-here")
    dialog.get_by_label("Partitions").fill("2")
    dialog.get_by_label("Settings").fill("retention.ms=60000, cleanup.policy=compact,delete")
    dialog.get_by_role("button", name="Create").click()
    expect(page).to_have_url(f"{tab.base}/ui/topics/made-here")
    expect(page.get_by_role("status").filter(has_text="Created made-here with 2 partitions.")).to_be_visible()
    tab.settled()
    page.get_by_role("button", name="Delete").click()
    button = page.get_by_role("dialog").get_by_role("button", name="Delete the topic")
    expect(button).to_be_disabled()
    page.get_by_role("dialog").get_by_label("Type made-here to confirm").fill("made-here")
    button.click()
    expect(page).to_have_url(f"{tab.base}/ui/topics")
    expect(page.locator("tbody")).not_to_contain_text("made-here")


def test_messages_are_browsed_filtered_and_shown_as_json(tab: Tab) -> None:
    page = tab.open("/ui/topics/orders/messages")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("button", name="Older messages").click()
    expect(page.locator("tbody tr")).to_have_count(100)
    page.get_by_label("Start", exact=True).select_option("From the beginning")
    expect(page).to_have_url(f"{tab.base}/ui/topics/orders/messages?from=earliest")
    page.get_by_role("button", name="Filter").click()
    page.get_by_label("JSON path").fill("$.status")
    page.get_by_label("equals").fill("paid")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("tbody tr").first).to_contain_text('"paid"')
    expect(page.locator("tbody")).not_to_contain_text('"shipped"')
    first = page.get_by_role("button", name="Open the message at offset").first
    first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre .tok-key").first).to_have_text('"order"')
    expect(dialog).to_contain_text("application/json")
    dialog.get_by_role("button", name="Raw").click()
    assert json.loads(dialog.locator("pre").inner_text())["status"] == "paid"
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_a_copied_address_opens_the_message(tab: Tab) -> None:
    page = tab.open("/ui/topics/orders/messages?from=offset&at=3&partition=1&open=1%3A4")
    expect(page.get_by_role("dialog")).to_contain_text("Partition 1, offset 4")


def test_a_payload_with_script_tags_is_inert(tab: Tab) -> None:
    page = tab.open("/ui/topics/payments/messages")
    expect(page.locator("tbody")).to_contain_text("<script>alert('payload')</script>")
    page.get_by_role("button", name="Open the message at offset").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("<img src=x onerror=")
    dialog.get_by_role("button", name="Raw").click()
    expect(dialog.locator("pre")).to_contain_text("<script>")
    assert page.locator("dialog img, dialog script, table img, table script").count() == 0
    # `Tab.checked` fails the test if one of the payload's scripts has run.


def test_messages_are_tailed_live(tab: Tab, broker: BrokerProcess) -> None:
    sample.create_topics(broker, {"tailed": 1})
    page = tab.open("/ui/topics/tailed/messages?from=tail")
    expect(page.get_by_text("Waiting for messages")).to_be_visible()
    expect(page.locator(".live")).to_have_text("Live")
    sample.produce_orders(broker, 3, "tailed")
    expect(page.locator("tbody tr")).to_have_count(3)
    expect(page.locator("tbody tr").first).to_contain_text('"order": 1002')
    page.get_by_role("button", name="Pause").click()
    sample.produce_orders(broker, 2, "tailed", first=3)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("tbody tr")).to_have_count(5)


def test_a_message_is_produced_and_the_counts_follow(tab: Tab, broker: BrokerProcess) -> None:
    sample.create_topics(broker, {"produced": 1})
    page = tab.open("/ui/topics/produced")
    page.get_by_role("button", name="Produce").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Key").fill("k")
    dialog.get_by_label("Value").fill('{"a": 1}')
    expect(dialog).to_contain_text("Valid JSON")
    dialog.get_by_label("Headers").fill("content-type: application/json")
    dialog.get_by_role("button", name="Produce").click()
    expect(page.get_by_text("Produced to partition 0, offset 0.")).to_be_visible()
    # Without a reload: by the live stream.
    expect(page.locator(".stat").first).to_contain_text("1")
    expect(page.locator("tbody tr").first).to_contain_text("1")


def test_a_setting_is_changed_after_a_preview(tab: Tab, broker: BrokerProcess) -> None:
    sample.create_topics(broker, {"settings-here": 1})
    page = tab.open("/ui/topics/settings-here/settings?setting=retention.ms")
    page.get_by_role("button", name="Change retention.ms", exact=True).click()
    dialog = page.get_by_role("dialog")
    tab.ignores_failed_requests = True  # The answer to the wrong value is 400, which the browser logs as an error.
    dialog.get_by_label("Value").fill("not a number")
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("retention.ms")
    dialog.get_by_label("Value").fill("3600000")
    expect(dialog).to_contain_text("to 3600000")
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(page.get_by_text("Changed retention.ms of topic settings-here.")).to_be_visible()
    expect(page.locator("tbody")).to_contain_text("3600000")


def test_messages_are_downloaded(tab: Tab) -> None:
    page = tab.open("/ui/topics/orders/messages?from=earliest")
    with page.expect_download() as started:
        page.get_by_role("link", name="Download").click()
    assert started.value.suggested_filename == "orders.ndjson"
    lines = [json.loads(line) for line in started.value.path().read_text().splitlines()]
    assert sum("value" in line for line in lines) == sample.ORDERS
