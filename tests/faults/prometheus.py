"""Debian's Prometheus, scraping brokers on loopback with the rules of `deploy/`, and promtool."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

from headrace.monitor.health.alert_rules import JOB, alert_rules
from headrace.testing.child import ChildProcess
from headrace.testing.etcd import free_port

_OPENER = build_opener(ProxyHandler({}))
LONGEST_S = 2.0
"""The waits of the rules are shortened to this."""


def is_installed() -> bool:
    return shutil.which("prometheus") is not None and shutil.which("promtool") is not None


def promtool(*arguments: str, stdin: str = "") -> str:
    """The output of promtool; an error fails the test."""
    done = subprocess.run(["promtool", *arguments], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"promtool {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


class Firing(NamedTuple):
    alert: str
    severity: str
    subject: str
    summary: str


class PrometheusProcess(ChildProcess):
    """Scrapes each second, and evaluates the rules as often."""

    def __init__(self, folder: Path, targets: Iterable[str]) -> None:
        super().__init__("Prometheus", folder.with_suffix(".log"))
        folder.mkdir()
        self._folder = folder
        self.port = free_port()
        (folder / "alerts.yml").write_text(alert_rules(longest_s=LONGEST_S))
        self.set_targets(targets)
        (folder / "prometheus.yml").write_text(
            f"""\
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: {JOB}
    file_sd_configs: [{{files: [targets.json], refresh_interval: 1s}}]
"""
        )
        promtool("check", "config", str(folder / "prometheus.yml"))

    def set_targets(self, targets: Iterable[str]) -> None:
        """The addresses to scrape from now on; Prometheus watches the file."""
        new = self._folder / "targets.new"
        new.write_text(json.dumps([{"targets": [each.removeprefix("http://") for each in targets]}]))
        new.replace(self._folder / "targets.json")

    def start(self, timeout_s: float = 60.0) -> Self:
        command = [
            "prometheus",
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]
        self._spawn(command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + timeout_s
        while self.is_running and time.monotonic() < end:
            try:
                with _OPENER.open(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
                    return self
            except (URLError, OSError):
                time.sleep(0.05)
        raise RuntimeError(f"Prometheus did not get ready; it printed:\n{self.stderr}")

    def get(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urlencode(query)}"
        with _OPENER.open(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def firing(self) -> dict[str, list[Firing]]:
        """The alerts that fire now, by name."""
        found: dict[str, list[Firing]] = {}
        for each in self.get("alerts")["alerts"]:
            if each["state"] == "firing":
                labels, notes = each["labels"], each["annotations"]
                name = labels["alertname"]
                found.setdefault(name, []).append(
                    Firing(name, labels["severity"], labels.get("subject", ""), notes["summary"])
                )
        return found

    def query(self, expression: str) -> list[tuple[Mapping[str, str], float]]:
        return [(each["metric"], float(each["value"][1])) for each in self.get("query", query=expression)["result"]]
