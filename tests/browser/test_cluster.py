"""A cluster in the browser: a broker that is killed and comes back, and one that is drained, with progress."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import expect

from headrace.testing import etcd
from headrace.testing.cluster import ClusterProcesses

from .conftest import OpenTab

pytestmark = pytest.mark.skipif(not etcd.is_installed(), reason="needs etcd: make packages installs it")


def test_a_killed_broker_is_shown_and_comes_back_and_another_is_drained(new_tab: OpenTab, tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, brokers=3, settings={"broker.session.timeout.ms": 3000}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for made in admin.create_topics([NewTopic("replicated", 4, 2)]).values():
            made.result(60)
        cluster.await_in_sync()
        tab = new_tab(cluster.brokers[1])
        page = tab.open("/ui/cluster")
        brokers, third = page.locator(".stat").first, page.locator("tbody tr[role=row]").nth(2)
        expect(brokers).to_contain_text("3 of 3")
        expect(third).to_contain_text("active")
        page.evaluate("window.sameDocument = true")
        cluster.kill(3)
        expect(brokers).to_contain_text("2 of 3")
        expect(page.locator(".stat").nth(3)).not_to_contain_text("Not in sync0")
        page.get_by_role("link", name="Overview").click()
        expect(page.locator(".health-sentence")).to_contain_text("roker 3")
        page.get_by_role("link", name="Cluster", exact=True).first.click()
        cluster.start_broker(3)
        expect(brokers).to_contain_text("3 of 3")
        expect(third).to_contain_text("active")
        assert page.evaluate("window.sameDocument") is True

        page.get_by_role("button", name="Drain broker 3").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("move to the other 2 brokers")
        dialog.get_by_role("button", name="Drain the broker").click()
        expect(third).to_contain_text("draining")
        expect(third.locator("td").nth(3)).to_have_text("0")
        page.get_by_role("button", name="End the drain").click()
        expect(third).to_contain_text("active")
        tab.close()
