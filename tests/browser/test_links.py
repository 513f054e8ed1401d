"""The pages of links, with a second broker as the other cluster: lag, problems, pausing, taking a topic over, and
failing back."""

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from playwright.sync_api import expect

from headrace.testing.process import BrokerProcess
from tests.waiting import until

from . import sample
from .conftest import PHONE, OpenTab

FAST = {"link.refresh.interval.ms": 100}
COUNT = 120


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("eu"), settings=FAST) as broker:
        yield broker


@pytest.fixture(scope="module")
def linked(source: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a link to another that has two topics to mirror, and one that cannot be mirrored."""
    with BrokerProcess(tmp_path_factory.mktemp("us"), settings=FAST) as target:
        sample.create_topics(source, {"orders": 2, "payments": 1, "taken": 1})
        sample.create_topics(target, {"eu.taken": 1})
        producer = Producer({"bootstrap.servers": source.bootstrap})
        for number in range(COUNT):
            producer.produce("orders", f"order {number}", partition=number % 2)
        assert producer.flush(60) == 0
        link = {"name": "eu", "bootstrap": [source.bootstrap], "topics": [".*"], "prefix": "eu."}
        sample.post(target, "/api/v1/links", link)
        until(lambda: _lag(target) == {"eu.orders": 0, "eu.payments": 0}, "the mirrors")
        yield target


def _lag(broker: BrokerProcess) -> dict[str, int | None]:
    found = sample.get(broker, "/api/v1/links/eu/topics")
    return {each["topic"]: each["lag_messages"] for each in found["items"]}


def test_links_are_listed_with_their_lag_and_are_accessible(new_tab: OpenTab, linked: BrokerProcess) -> None:
    tab = new_tab(linked)
    page = tab.open("/ui/links")
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("active")
    expect(row).to_contain_text("caught up")
    assert tab.inaccessible() == []
    row.get_by_role("link", name="eu").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("eu")
    expect(page.get_by_role("region", name="Mirror topics").locator("tbody tr")).to_have_count(2)
    expect(page.get_by_role("region", name="Topics with problems")).to_contain_text("taken")
    assert tab.inaccessible() == []
    page.get_by_label("Search mirror topics").fill("pay")
    expect(page.get_by_role("region", name="Mirror topics").locator("tbody tr")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("k")
    expect(page).to_have_url(f"{tab.base}/ui/links")
    phone = new_tab(linked, size=PHONE, has_touch=True)
    for path in ("/ui/links", "/ui/links/eu"):
        phone.open(path)
        assert phone.width() <= PHONE["width"]


def test_a_link_and_a_topic_are_paused_and_resumed(new_tab: OpenTab, linked: BrokerProcess) -> None:
    page = new_tab(linked).open("/ui/links/eu")
    page.get_by_role("button", name="Pause the link").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause the link").click()
    expect(page.get_by_text("Paused the link eu.")).to_be_visible()
    page.get_by_role("button", name="Resume the link").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume the link").click()
    expect(page.get_by_role("button", name="Pause the link")).to_be_visible()
    page.get_by_role("button", name="Pause eu.payments").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause the mirror topic").click()
    page.get_by_label("State").select_option("Paused")
    rows = page.get_by_role("region", name="Mirror topics").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("eu.payments")
    page.get_by_role("button", name="Resume eu.payments").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume the mirror topic").click()
    expect(page.get_by_role("main")).to_contain_text("Nothing matches")


def test_topics_are_taken_over_after_a_look_at_what_is_missing(new_tab: OpenTab, linked: BrokerProcess) -> None:
    tab = new_tab(linked)
    page = tab.open("/ui/links/eu")
    dialog = page.get_by_role("dialog")

    def is_nothing_missing() -> bool:
        """On a busy machine the source may have been heard more than a second ago: then look again."""
        page.get_by_role("button", name="Fail over eu.orders").click()
        expect(dialog).to_contain_text(re.compile("is missing|are missing"))
        if "Nothing that the source had a moment ago is missing." in dialog.inner_text():
            return True
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        return False

    until(is_nothing_missing)
    assert tab.inaccessible() == []
    expect(dialog.get_by_role("button", name="Fail over now")).to_be_disabled()
    dialog.get_by_label("Type eu.orders to confirm").fill("eu.orders")
    dialog.get_by_role("button", name="Fail over now").click()
    expect(page.get_by_text("eu.orders is writable here.")).to_be_visible()
    row = page.get_by_role("region", name="Mirror topics").locator("tbody tr").first
    expect(row).to_contain_text("taken over")
    expect(row.get_by_role("button")).to_have_count(1)
    expect(page.locator(".stat").nth(3)).to_contain_text("1 topic taken over")

    page.get_by_role("button", name="Promote eu.payments").click()
    expect(dialog).to_contain_text("It has everything of the source now.")
    dialog.get_by_role("button", name="Promote").click()
    expect(page.get_by_text("eu.payments is writable here.")).to_be_visible()
    tab.open("/ui/links")
    expect(page.locator("tbody tr")).to_contain_text("just now")


def test_a_former_source_becomes_a_mirror(new_tab: OpenTab, linked: BrokerProcess, source: BrokerProcess) -> None:
    # Taken over above, while the former source went on.
    producer = Producer({"bootstrap.servers": source.bootstrap})
    producer.produce("orders", "unseen", partition=0)
    assert producer.flush(60) == 0
    link = {"name": "us", "bootstrap": [linked.bootstrap], "topics": ["eu\\..*"]}
    sample.post(source, "/api/v1/links", link)
    tab = new_tab(source)
    page = tab.open("/ui/links/us")
    problems = page.get_by_role("region", name="Topics with problems")
    expect(problems).to_contain_text("headrace link reverse us orders")
    assert tab.inaccessible() == []
    page.get_by_role("button", name="Reverse orders").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 message that the other cluster never had would be set aside in orders.divergent.")
    assert tab.inaccessible() == []
    expect(dialog.get_by_role("button", name="Make it a mirror")).to_be_disabled()
    dialog.get_by_label("Type orders to confirm").fill("orders")
    dialog.get_by_role("button", name="Make it a mirror").click()
    expect(page.get_by_text("orders is a mirror of eu.orders now.")).to_be_visible()
    row = page.get_by_role("region", name="Mirror topics").locator("tbody tr").first
    expect(row).to_contain_text("mirroring")

    # What was not taken over there cannot be reversed, and the dialog says why.
    tab = new_tab(linked)
    tab.ignores_failed_requests = True
    page = tab.open("/ui/links/eu")
    page.get_by_role("button", name="Reverse eu.payments").click()
    expect(page.get_by_role("dialog")).to_contain_text("No topic in the cluster of the link eu was promoted")
