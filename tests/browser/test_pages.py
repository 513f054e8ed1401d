"""Every page: it opens by its address, is accessible in light and dark, and fits on a phone."""

import pytest
from playwright.sync_api import expect

from headrace.testing.process import BrokerProcess

from .conftest import PHONE, OpenTab
from .tab import Tab

PAGES = {
    "/ui": "Overview",
    "/ui/topics": "Topics",
    "/ui/topics/orders": "orders",
    "/ui/topics/orders/messages": "orders",
    "/ui/topics/orders/consumers": "orders",
    "/ui/topics/orders/settings?setting=retention": "orders",
    "/ui/groups": "Groups",
    "/ui/groups/billing": "billing",
    "/ui/groups/billing/members": "billing",
    "/ui/queues": "Queues",
    "/ui/queues/jobs": "jobs",
    "/ui/queues/jobs/dead-letters": "jobs",
    "/ui/queues/jobs/settings": "jobs",
    "/ui/transactions": "Transactions",
    "/ui/schemas": "Schemas",
    "/ui/schemas/shipments-value": "shipments-value",
    "/ui/schemas/shipments-value/compare?from=1&to=2": "shipments-value",
    "/ui/schemas/shipments-value/versions": "shipments-value",
    "/ui/pipelines": "Pipelines",
    "/ui/pipelines/enrich-orders": "enrich-orders",
    "/ui/pipelines/enrich-orders/dead-letters": "enrich-orders",
    "/ui/pipelines/enrich-orders/log": "enrich-orders",
    "/ui/clients": "Clients",
    "/ui/clients/metrics": "Clients",
    "/ui/clients/quotas": "Clients",
    "/ui/cluster": "Cluster",
    "/ui/cluster/reassignments": "Cluster",
    "/ui/cluster/settings?setting=retention": "Cluster",
    "/ui/links": "Links",
    "/ui/security": "Security",
    "/ui/security/acls": "Security",
    "/ui/security/explain": "Security",
    "/ui/security/audit": "Security",
    "/ui/login": "Log in to Headrace",
    "/ui/nowhere/at/all": "Not found",
}
"""Address and heading."""


BY_COLOUR = ("color-contrast", "link-in-text-block")
"""The rules of axe that depend on the theme; by the others dark is like light."""
DIALOGS = {
    "/ui/topics?create=1": "Create a topic",
    "/ui/schemas?register=1": "Register a schema",
    "/ui/topics/orders/messages?from=offset&at=0&partition=0&open=0%3A0": "Partition 0, offset 0",
}


def test_pages_are_accessible_in_light_and_dark(tab: Tab) -> None:
    found = {}
    for path, heading in (PAGES | DIALOGS).items():
        tab.page.emulate_media(color_scheme="light")
        page = tab.open(path)
        expect(page.get_by_role("heading", name=heading, exact=True).first).to_be_visible()
        found[path] = tab.inaccessible()
        page.emulate_media(color_scheme="dark")
        found[f"{path} in the dark"] = tab.inaccessible(BY_COLOUR)
    assert {path: findings for path, findings in found.items() if findings} == {}


def test_pages_fit_on_a_phone(new_tab: OpenTab, broker: BrokerProcess) -> None:
    tab = new_tab(broker, size=PHONE, has_touch=True)
    too_wide = {}
    for path in PAGES:
        tab.open(path)
        if tab.width() > PHONE["width"]:
            too_wide[path] = tab.width()
    assert too_wide == {}
    tab.page.get_by_role("button", name="Menu").click()
    tab.page.get_by_role("link", name="Queues").click()
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("Queues")
    expect(tab.page.get_by_role("link", name="Transactions")).not_to_be_visible()


def test_an_unknown_address_says_what_to_do(tab: Tab) -> None:
    page = tab.open("/ui/nowhere")
    expect(page.get_by_role("main")).to_contain_text("There is no page here")
    page.get_by_role("link", name="Go to the overview").click()
    expect(page).to_have_url(f"{tab.base}/ui")


def test_what_does_not_exist_is_said_in_words(tab: Tab) -> None:
    tab.ignores_failed_requests = True  # Its answer is 404, which the browser logs as an error.
    for kind in ("topics", "groups", "queues", "pipelines", "schemas", "links"):
        page = tab.open(f"/ui/{kind}/absent")
        expect(page.get_by_role("main")).to_contain_text("There is nothing here")
        expect(page.get_by_role("main")).to_contain_text("absent")


def test_the_address_without_a_path_leads_to_the_dashboard(tab: Tab) -> None:
    page = tab.open("/")
    expect(page).to_have_url(f"{tab.base}/ui")
    expect(page).to_have_title("Overview · Headrace")


def test_empty_lists_say_which_command_is_next(new_tab: OpenTab, tmp_path_factory: pytest.TempPathFactory) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("empty")) as empty:
        tab = new_tab(empty)
        for path, command in {
            "/ui/topics": "headrace topic create orders --partitions 3",
            "/ui/groups": "kcat -b localhost:9092 -G billing orders",
            "/ui/queues": "headrace queue create jobs",
            "/ui/schemas": "headrace schema register orders-value order.avsc",
            "/ui/links": "headrace link create eu --bootstrap eu-1:9092 --topics 'orders.*' --prefix eu.",
        }.items():
            expect(tab.open(path).get_by_role("main")).to_contain_text(command)
        tab.close()
