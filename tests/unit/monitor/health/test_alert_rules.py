"""The alert rules and the documentation are those of the table, and promtool accepts the rules."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from headrace.monitor.health.alert_rules import ABSENT, UNREACHABLE, alert_rules
from headrace.monitor.health.rules import RULES

ROOT = Path(__file__).parents[4]
ALERTS = ROOT / "deploy/prometheus/alerts.yml"


def test_the_file_in_deploy_is_made_of_the_table():
    assert ALERTS.read_text() == alert_rules(), "make docs"


def test_the_page_on_operations_has_every_problem():
    text = (ROOT / "docs/operations.md").read_text()
    rows = [
        f"| `{rule.id}` | `{rule.alert}` | {', '.join(rule.severities)} | {rule.threshold} | "
        f"{rule.action.replace('{subject}', rule.noun)} |"
        for rule in RULES
    ]
    documented = re.findall(r"^\| `[a-z_]+` \| `Headrace.*$", text, flags=re.MULTILINE)
    assert documented == rows
    for alert in (UNREACHABLE, ABSENT):
        assert f"| `{alert}` | critical |" in text


def test_the_waits_can_be_scaled():
    assert "for: 120s" in alert_rules()
    assert "for: 1200ms" in alert_rules(scale=0.01)
    assert "for: 0" not in alert_rules()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_accepts_the_rules(tmp_path):
    short = tmp_path / "short.yml"
    short.write_text(alert_rules(scale=0.01))
    for file in (ALERTS, short):
        done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{len(RULES) + 2} rules found" in done.stdout
