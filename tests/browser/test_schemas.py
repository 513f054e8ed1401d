"""Schemas in the browser: found, registered, compared, checked and deleted."""

from playwright.sync_api import expect

from headrace.testing.process import BrokerProcess

from . import sample
from .tab import Tab


def test_the_list_is_searched_and_sorted_by_the_server(tab: Tab) -> None:
    page = tab.open("/ui/schemas?search=shipments")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("button", name="Versions").click()
    expect(page.get_by_role("columnheader", name="Versions")).to_have_attribute("aria-sort", "descending")
    expect(page.locator("tbody tr").first).to_contain_text("shipments-value")
    page.get_by_role("link", name="shipments-value").click()
    expect(page).to_have_url(f"{tab.base}/ui/schemas/shipments-value")
    expect(page.get_by_role("main")).to_contain_text("Upgrade consumers first.")


def test_a_version_has_its_text_its_references_and_its_topic(tab: Tab) -> None:
    page = tab.open("/ui/schemas/shipments-value")
    expect(page.get_by_role("region", name="Schema")).to_contain_text('"name": "address"')
    expect(page.get_by_role("main")).to_contain_text("the values of the topic shipments")
    page.get_by_label("Version").select_option("Version 1")
    expect(page).to_have_url(f"{tab.base}/ui/schemas/shipments-value?version=1")
    expect(page.get_by_role("region", name="Schema")).not_to_contain_text('"name": "address"')
    page = tab.open("/ui/schemas/shipments-value?version=2")
    page.get_by_role("link", name="shipments-address version 1").click()
    expect(page).to_have_url(f"{tab.base}/ui/schemas/shipments-address?version=1")
    expect(page.get_by_role("main")).to_contain_text("shipments-value version 2")


def test_a_topic_leads_to_its_schemas(tab: Tab) -> None:
    page = tab.open("/ui/topics/shipments")
    page.get_by_role("link", name="schema of values").click()
    expect(page).to_have_url(f"{tab.base}/ui/schemas/shipments-value")


def test_two_versions_are_compared_in_colour(tab: Tab) -> None:
    page = tab.open("/ui/schemas/shipments-value/compare?from=1&to=2")
    difference = page.get_by_role("region", name="Difference")
    expect(difference.locator("tr.removed").first).to_contain_text('"type": "int"')
    expect(difference.locator("tr.added").first).to_contain_text('"type": "long"')
    colours = [
        difference.locator(f"tr.{change} td").first.evaluate("(cell) => getComputedStyle(cell).backgroundColor")
        for change in ("same", "removed", "added")
    ]
    assert len(set(colours)) == 3
    page.get_by_label("Later version").select_option("Version 1")
    expect(page.get_by_role("main")).to_contain_text("Both versions have the same text.")


def test_a_schema_is_registered_checked_changed_and_deleted(tab: Tab) -> None:
    tab.ignores_failed_requests = True  # An incompatible schema is refused with 409, which the browser logs.
    page = tab.open("/ui/schemas")
    page.get_by_role("button", name="Register a schema").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Subject").fill("made-here-value")
    dialog.get_by_role("button", name="Register").click()
    expect(page).to_have_url(f"{tab.base}/ui/schemas/made-here-value")
    page.get_by_role("button", name="New version").click()
    text = dialog.get_by_label("Schema")
    text.fill(text.input_value().replace('"string"', '"int"'))
    dialog.get_by_role("button", name="Check").click()
    expect(dialog.get_by_role("status")).to_contain_text("It would be refused")
    dialog.get_by_role("button", name="Register").click()
    expect(dialog.get_by_role("alert")).to_contain_text("incompatible")
    page.keyboard.press("Escape")

    page.get_by_role("button", name="Compatibility").click()
    dialog.get_by_label("Level").select_option("none")
    dialog.get_by_role("button", name="Change").click()
    expect(page.get_by_role("main")).to_contain_text("Any change is accepted")
    page.get_by_role("button", name="New version").click()
    dialog.get_by_label("Schema").fill('"string"')
    dialog.get_by_role("button", name="Register").click()
    expect(page.get_by_role("heading", name="Version 2")).to_be_visible()

    page.get_by_role("button", name="Delete").click()
    dialog.get_by_label("Type made-here-value to confirm").fill("made-here-value")
    dialog.get_by_role("button", name="Delete the subject").click()
    expect(page.get_by_text("deleted", exact=True).first).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    dialog.get_by_label("Type made-here-value to confirm").fill("made-here-value")
    dialog.get_by_role("button", name="Delete it for good").click()
    expect(page).to_have_url(f"{tab.base}/ui/schemas")
    expect(page.locator("tbody")).not_to_contain_text("made-here-value")


def test_messages_are_decoded_by_their_schema(tab: Tab) -> None:
    page = tab.open("/ui/topics/receipts/messages?from=earliest&open=0%3A0")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_contain_text('"order": "1007"')
    expect(dialog.locator("pre")).to_contain_text('"cents": 1250')
    expect(dialog).to_contain_text("protobuf")
    dialog.get_by_role("link", name="receipts-value version 1").click()
    expect(page.get_by_role("region", name="Schema")).to_contain_text("message Receipt")


def test_a_schema_with_script_tags_is_inert(tab: Tab, broker: BrokerProcess) -> None:
    sample.register(
        broker, "inert-value", sample.avro_record("Inert", [{"name": "x", "type": "int", "doc": sample.SCRIPT}])
    )
    page = tab.open("/ui/schemas/inert-value")
    expect(page.get_by_role("region", name="Schema")).to_contain_text("<script>")
