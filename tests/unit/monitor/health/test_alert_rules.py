"""The alert rules and the documentation are those of the table, and promtool accepts the rules."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace.monitor.health.alert_rules import ABSENT, UNREACHABLE, alert_rules
from headrace.monitor.health.rules import RULES, HealthRule

ROOT = Path(__file__).parents[4]
LONGEST_S = 300
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


def test_the_waits_can_be_shortened():
    assert "for: 120s" in alert_rules()
    assert {*re.findall("for: (.*)", alert_rules(longest_s=2))} == {"2s"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_accepts_the_rules(tmp_path):
    short = tmp_path / "short.yml"
    short.write_text(alert_rules(longest_s=1))
    for file in (ALERTS, short):
        done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{len(RULES) + 2} rules found" in done.stdout


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_each_alert_fires_after_its_time_for_each_subject_and_ends(tmp_path):
    """By `promtool test rules`: two brokers see the same problem, which is one alert."""
    (tmp_path / "alerts.yml").write_text(alert_rules(longest_s=LONGEST_S))
    cases = {"rule_files": ["alerts.yml"], "evaluation_interval": "60s", "tests": [_case(rule) for rule in RULES]}
    (tmp_path / "test.yml").write_text(json.dumps(cases))
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "test.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _case(rule: HealthRule) -> dict[str, Any]:
    after_s, severity = int(min(rule.alert_after_s, LONGEST_S)), rule.severities[0]
    labels = {"id": rule.id, "severity": severity, "subject": "a thing", "job": "headrace"}
    notes = {
        "summary": f"{rule.title}: a thing",
        "description": f"{rule.threshold[0].upper()}{rule.threshold[1:]}. {rule.action}".replace(
            "{subject}", "a thing"
        ),
    }
    selector = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
    series = [
        {
            "series": f'headrace_health_problem{{{selector},instance="{instance}"}}',
            "values": f"1x{(after_s + 180) // 60} stale",
        }
        for instance in ("one", "two")
    ]
    expected = [{"exp_labels": labels, "exp_annotations": notes}]
    tests = [
        {"eval_time": f"{after_s + 60}s", "alertname": rule.alert, "exp_alerts": expected},
        {"eval_time": f"{after_s + 600}s", "alertname": rule.alert, "exp_alerts": []},
    ]
    if after_s >= 60:
        tests.append({"eval_time": f"{after_s - 60}s", "alertname": rule.alert, "exp_alerts": []})
    return {"interval": "60s", "input_series": series, "alert_rule_test": tests}
