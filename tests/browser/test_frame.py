"""The frame of every page: keys, the jump box, the theme, charts, and a broker that goes away and comes back."""

from pathlib import Path

from playwright.sync_api import expect

from headrace.testing.process import BrokerProcess

from . import sample
from .conftest import OpenTab
from .tab import Tab


def test_keys(tab: Tab) -> None:
    page = tab.open("/ui")
    heading = page.get_by_role("heading", level=1)
    for keys, title in (("gt", "Topics"), ("gq", "Queues"), ("gg", "Groups"), ("go", "Overview")):
        for key in keys:
            page.keyboard.press(key)
        expect(heading).to_have_text(title)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("t")
    tab.settled()
    page.keyboard.press("/")
    field = page.get_by_role("searchbox", name="Search topics")
    expect(field).to_be_focused()
    # A key that is typed into a field is a letter.
    page.keyboard.type("gq")
    expect(field).to_have_value("gq")
    page.keyboard.press("Escape")
    expect(field).not_to_be_focused()


def test_the_jump_box_finds_by_name(tab: Tab) -> None:
    page = tab.open("/ui")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.type("bill")
    expect(page.get_by_role("option").first).to_contain_text("billing")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{tab.base}/ui/groups/billing")


def test_the_keyboard_alone_reaches_content_and_shows_focus(tab: Tab) -> None:
    page = tab.open("/ui/topics")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    focused = page.locator(":focus")
    expect(focused).to_have_text("Create a topic")
    assert focused.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_label("Name")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Create a topic").first).to_be_focused()


def test_the_theme_is_the_systems_until_one_is_chosen(new_tab: OpenTab, broker: BrokerProcess) -> None:
    tab = new_tab(broker, theme="dark")
    page = tab.open("/ui/topics")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.get_by_role("button", name="Theme: the system's").click()
    light = page.evaluate(background)
    assert dark != light
    page.reload()
    tab.settled()
    assert page.evaluate(background) == light


def test_charts_grow_and_show_values_under_the_pointer(tab: Tab, broker: BrokerProcess) -> None:
    page = tab.open("/ui")
    chart = page.get_by_role("img", name="Messages:")
    expect(chart.locator("canvas")).to_be_visible()
    expect(page.locator(".live")).to_have_text("Live")
    rate = page.locator(".stat").first
    sample.produce_orders(broker, 3000, "shipments")
    expect(rate).not_to_contain_text("Messages in0/s")
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 30, box["y"] + box["height"] / 2)
    expect(chart.locator(".chart-tip")).to_contain_text("/s")


def test_a_broker_that_goes_away_and_comes_back(new_tab: OpenTab, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        sample.create_topics(process, {"stays": 1})
        tab = new_tab(process)
        page = tab.open("/ui/topics/stays")
        expect(page.locator(".live")).to_have_text("Live")
        page.evaluate("window.sameDocument = true")
        tab.ignores_failed_requests = True
        process.kill()
        expect(page.locator(".live")).to_have_text("Reconnecting")
        expect(page.get_by_role("heading", level=1)).to_have_text("stays")
        process.start()
        expect(page.locator(".live")).to_have_text("Live")
        sample.produce_orders(process, 4, "stays")
        expect(page.locator(".stat").first).to_contain_text("4")
        assert page.evaluate("window.sameDocument") is True
        tab.close()
