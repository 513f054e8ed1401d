"""The login: with the broker's users, for the views that they may see; and a dashboard that only shows."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from headrace.testing import Broker

from . import sample
from .conftest import OpenTab

PASSWORD = "correct horse battery staple"
SETTINGS = {
    "authorization.enable": True,
    "super.users": "User:admin",
    "connection.failed.authentication.delay.ms": 1,
}


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(users={"admin": PASSWORD, "guest": PASSWORD}, settings=SETTINGS) as broker:
        yield broker


def test_a_deep_link_leads_through_the_login_and_back(new_tab: OpenTab, secured: Broker) -> None:
    tab = new_tab(secured)
    tab.ignores_failed_requests = True  # Refused requests are logged by the browser as errors.
    page = tab.open("/ui/topics?sort=partitions")
    expect(page.get_by_role("heading", name="Log in to Headrace")).to_be_visible()
    page.get_by_label("User").fill("admin")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("wrong")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{tab.base}/ui/topics?sort=partitions")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    # A change carries the token against forgery.
    page.get_by_role("button", name="Create a topic").first.click()
    page.get_by_role("dialog").get_by_label("Name").fill("made-by-admin")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page).to_have_url(f"{tab.base}/ui/topics/made-by-admin")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in to Headrace")).to_be_visible()
    assert page.context.cookies() == []


def test_a_login_that_has_ended_leads_to_the_login_page(new_tab: OpenTab) -> None:
    with Broker(users={"admin": PASSWORD}, settings=SETTINGS) as broker:
        tab = new_tab(broker)
        tab.ignores_failed_requests = True
        page = tab.open("/ui/login?next=/ui")
        page.get_by_label("User").fill("admin")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        expect(page.locator(".live")).to_have_text("Live")
        # Logins are in the memory of a broker.
        broker.stop()
        broker.start()
        expect(page.get_by_role("heading", name="Log in to Headrace")).to_be_visible()
        expect(page).to_have_url(f"{tab.base}/ui/login?next=%2Fui")
        tab.close()


def test_the_login_leads_to_no_other_site(new_tab: OpenTab, secured: Broker) -> None:
    tab = new_tab(secured)
    tab.ignores_failed_requests = True
    page = tab.open("/ui/login?next=https%3A%2F%2Fexample.com%2Fui")
    page.get_by_label("User").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{tab.base}/ui")


def test_a_person_without_permissions_sees_nothing_and_is_told_so(new_tab: OpenTab, secured: Broker) -> None:
    tab = new_tab(secured)
    tab.ignores_failed_requests = True
    page = tab.open("/ui/login?next=/ui/topics")
    page.get_by_label("User").fill("guest")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("main")).to_contain_text("No topic yet")
    expect(page.get_by_role("button", name="Create a topic")).to_have_count(0)
    page.goto(f"{tab.base}/ui/cluster")
    expect(page.get_by_role("main")).to_contain_text("You may not see this")


def test_a_user_is_added_gets_a_rule_and_the_decision_is_explained(new_tab: OpenTab, secured: Broker) -> None:
    tab = new_tab(secured)
    tab.ignores_failed_requests = True
    page = tab.open("/ui/login?next=/ui/security")
    page.get_by_label("User").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Add a user").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("bob")
    dialog.get_by_label("Password").fill(PASSWORD)
    dialog.get_by_role("button", name="Add").click()
    expect(page.locator("tbody")).to_contain_text("bob")
    page.get_by_role("link", name="Explain").click()
    page.get_by_label("User").fill("bob")
    page.get_by_label("Name").fill("orders")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator(".decision")).to_contain_text("Denied")
    page.get_by_role("link", name="ACLs").click()
    page.get_by_role("button", name="Add a rule").first.click()
    dialog.get_by_label("Who").fill("User:bob")
    dialog.get_by_label("Name").fill("orders")
    dialog.get_by_role("button", name="Add").click()
    expect(page.locator("tbody")).to_contain_text("User:bob")
    page.goto(f"{tab.base}/ui/security/explain?user=bob&operation=read&resource=topic&name=orders")
    expect(page.locator(".decision")).to_contain_text("Allowed")
    page.get_by_role("link", name="Audit log").click()
    expect(page.locator("tbody tr[role=row]").first).to_contain_text("admin")


def test_a_read_only_dashboard_has_no_buttons_that_change(new_tab: OpenTab) -> None:
    with Broker(settings={"dashboard.read.only": True}) as broker:
        sample.create_topics(broker, {"seen": 1})
        tab = new_tab(broker)
        page = tab.open("/ui/topics/seen")
        expect(page.get_by_text("read-only")).to_be_visible()
        for name in ("Produce", "Delete", "Partitions"):
            expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
        sample.post(broker, "/registry/subjects/seen-value/versions", {"schema": '"string"'})
        page = tab.open("/ui/schemas/seen-value")
        expect(page.get_by_role("region", name="Schema")).to_contain_text("string")
        for name in ("New version", "Delete", "Compatibility"):
            expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
        tab.close()
