"""Queues in the browser: created, sent to, looked into, redriven with progress, purged and deleted."""

from playwright.sync_api import expect

from headrace.testing.process import BrokerProcess

from . import sample
from .tab import Tab


def test_a_queue_is_created_sent_to_purged_and_deleted(tab: Tab) -> None:
    page = tab.open("/ui/queues")
    page.get_by_role("button", name="Create a queue").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("made-in-browser")
    dialog.get_by_label("Dead-letter queue").fill("made-in-browser-dead")
    dialog.get_by_role("button", name="Create").click()
    expect(page).to_have_url(f"{tab.base}/ui/queues/made-in-browser")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("dialog").get_by_label("Body").fill('{"job": 1}')
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    expect(page.get_by_text("Sent a message to made-in-browser.")).to_be_visible()
    expect(page.locator("tbody tr")).to_contain_text('"job": 1')
    page.get_by_role("button", name="Open the message").click()
    expect(page.get_by_role("dialog")).to_contain_text("visible")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Purge").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 message is deleted")
    dialog.get_by_label("Type made-in-browser to confirm").fill("made-in-browser")
    dialog.get_by_role("button", name="Purge the queue").click()
    expect(page.get_by_text("The queue is empty")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type made-in-browser to confirm").fill("made-in-browser")
    dialog.get_by_role("button", name="Delete the queue").click()
    expect(page).to_have_url(f"{tab.base}/ui/queues")


def test_dead_letters_show_the_reason_and_are_redriven_with_progress(tab: Tab, broker: BrokerProcess) -> None:
    sample.create_queues(broker, "redriven", dead_letters=8)
    page = tab.open("/ui/queues/redriven/dead-letters")
    expect(page.locator("tbody tr")).to_have_count(8)
    expect(page.locator("tbody tr").first).to_contain_text("received")
    page.get_by_role("button", name="Redrive").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("8 messages move from redriven-dead back to")
    dialog.get_by_label("Messages per second").fill("4")
    dialog.get_by_role("button", name="Redrive").click()
    progress = page.get_by_role("progressbar", name="Redrive")
    expect(progress).to_be_visible()
    expect(page.locator(".redrive")).to_contain_text("Redriving")
    expect(page.get_by_text("Redrive ended: 8 of 8 moved")).to_be_visible()
    expect(page.get_by_role("heading", name="No dead letters")).to_be_visible()


def test_counts_follow_without_a_reload(tab: Tab, broker: BrokerProcess) -> None:
    queues = sample.create_queues(broker, "counted", dead_letters=0)
    page = tab.open("/ui/queues/counted")
    visible, delayed = page.locator(".stat").nth(0), page.locator(".stat").nth(2)
    expect(visible).to_contain_text("3")
    expect(delayed).to_contain_text("1")
    queues.sqs.send_message(QueueUrl=queues.jobs, MessageBody="one more")
    expect(visible).to_contain_text("4")
