"""Transactions that are open, and clients that are connected, in the browser."""

from confluent_kafka import Producer
from playwright.sync_api import expect

from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster, ConfigResource

from .tab import Tab


def test_an_open_transaction_is_shown_and_aborted(tab: Tab, broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "hanging-teller"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("shipments", b"not yet", partition=0)
    assert producer.flush(60) == 0
    page = tab.open("/ui/transactions?search=hanging")
    row = page.locator("tbody tr")
    expect(row).to_contain_text("hanging-teller")
    expect(row).to_contain_text("ongoing")
    expect(row.locator('td[data-label="Partitions"]')).to_have_text("1")
    page.get_by_role("button", name="Abort hanging-teller").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("never visible to readers with read_committed")
    dialog.get_by_role("button", name="Abort the transaction").click()
    expect(page.get_by_role("status").filter(has_text="Aborted the transaction of hanging-teller.")).to_be_visible()
    expect(row).to_contain_text("not open")
    expect(page.get_by_role("button", name="Abort hanging-teller")).to_have_count(0)


def test_connected_clients_and_their_metrics(tab: Tab, broker: BrokerProcess) -> None:
    with Cluster(broker.bootstrap) as admin:
        admin.alter_settings(ConfigResource.CLIENT_METRICS, "tills", {"match": "client_id=till-.*"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "till-7"})
    producer.produce("shipments", b"sold", partition=0)
    assert producer.flush(60) == 0
    page = tab.open("/ui/clients?search=till-7")
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("confluent-kafka-python")
    expect(row.locator('td[data-label="Address"]')).to_have_text("127.0.0.1")
    expect(row.locator('td[data-label="User"]')).to_have_text("ANONYMOUS")
    requests = row.locator('td[data-label="Requests"]')
    before = requests.inner_text()
    for _ in range(10):
        producer.produce("shipments", b"sold", partition=0)
        assert producer.flush(60) == 0
    expect(requests).not_to_have_text(before)
    # librdkafka asks at once which metrics to push, if anybody has subscribed to some.
    row.get_by_role("link", name="shown").click()
    expect(page.get_by_role("heading", name="till-7")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("Instance id")


def test_a_client_that_is_throttled_is_first_among_the_users_of_quotas(tab: Tab, broker: BrokerProcess) -> None:
    with Cluster(broker.bootstrap) as admin:
        admin.alter_quotas((("client-id", "greedy"),), {"producer_byte_rate": 102_400.0})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "greedy"})
    for _ in range(2):
        producer.produce("shipments", bytes(600_000), partition=0)
        assert producer.flush(60) == 0
    page = tab.open("/ui/clients/quotas")
    row = page.locator("tbody tr").first
    expect(row).to_contain_text("greedy")
    expect(row.locator('td[data-label="Quota"]')).to_have_text("Produce")
    expect(row.locator('td[data-label="Limit"]')).to_have_text("100 KiB/s")
    expect(row.locator('td[data-label="Throttled"]')).not_to_have_text("never")
