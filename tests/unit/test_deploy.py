"""What is in deploy/ fits the program: every flag, setting and file that it names."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from headrace.cli.main import app
from headrace.config.load import load_settings
from headrace.model.errors import SettingsError

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def check_flags(arguments: list[str], command: str = "serve") -> dict[str, object]:
    """The options of a command in these arguments; an unknown one fails."""
    root = typer.main.get_command(app)
    found = root.get_command(typer.Context(root), command)  # type: ignore[attr-defined]
    context = found.make_context(command, arguments, resilient_parsing=False)
    return dict(context.params)


def read_env(name: str) -> dict[str, str]:
    lines = (DEPLOY / "systemd" / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_start_what_there_is(unit):
    (line,) = re.findall(r"^ExecStart=(.+)$", unit.read_text(), flags=re.MULTILINE)
    program, command, *arguments = shlex.split(line)
    assert (Path(program).name, command) == ("headrace", "serve")
    options = check_flags(arguments)
    assert (DEPLOY / Path(str(options["config"])).name).is_file()


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_are_started_when_the_broker_is_ready(unit):
    (start,) = re.findall(r"^ExecStart=(.+)$", unit.read_text(), flags=re.MULTILINE)
    (line,) = re.findall(r"^ExecStartPost=-(.+)$", unit.read_text(), flags=re.MULTILINE)
    _, command, *arguments = shlex.split(line)
    options = check_flags(arguments, command)
    assert (command, options["ready"]) == ("health", True)
    assert f"--data-dir {options['data_dir']} " in start


def test_containers_are_healthy_when_the_broker_is_ready():
    (command,) = re.findall(r"^ +CMD (\[.+\])$", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    (test,) = re.findall(r"test: \[CMD, (.+)\]", (DEPLOY / "compose.yaml").read_text())
    assert json.loads(command) == test.split(", ")
    _, name, *arguments = test.split(", ")
    assert check_flags(arguments, name)["ready"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_understands_the_units(unit, tmp_path):
    installed = tmp_path / unit.name
    installed.write_text(unit.read_text().replace("/opt/headrace/bin/headrace", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(installed)], capture_output=True, text=True, timeout=60, check=False
    )
    assert unit.name not in done.stderr, done.stderr


def test_settings_of_one_broker():
    assert load_settings(config_file=DEPLOY / "headrace.toml").num_partitions == 4


def test_settings_of_a_cluster():
    settings = load_settings(config_file=DEPLOY / "cluster.toml", environment=read_env("broker.env"))
    assert len(settings.etcd_endpoints) == 3
    assert (settings.broker_id, settings.broker_rack, settings.advertise) == (1, "a", "queue1.example.org")
    assert settings.default_replication_factor == 3
    assert settings.topic_defaults.min_insync_replicas == 2


def test_queues_are_served_to_others_with_keys_only():
    config = "headrace.toml"
    environment = read_env("broker.env") | read_env("queues.env")
    with pytest.raises(SettingsError, match="without authentication"):
        load_settings(config_file=DEPLOY / config, environment=environment)
    environment["HEADRACE_SQS_ACCESS_KEYS"] = "me:secret"
    assert load_settings(config_file=DEPLOY / config, environment=environment).http_listen == ":9324"
    assert load_settings(config_file=DEPLOY / config, environment=read_env("broker.env")).http_listen == ""
    for unit in UNITS:
        assert "EnvironmentFile=-/etc/headrace/queues.env\n" in unit.read_text()


def test_settings_that_are_commented_out_exist_too(tmp_path):
    text = re.sub(r"^# (?=\w+(\.\w+)* = )", "", (DEPLOY / "cluster.toml").read_text(), flags=re.MULTILINE)
    (tmp_path / "all.toml").write_text(text)
    settings = load_settings(config_file=tmp_path / "all.toml")
    assert settings.etcd_ca_file
    assert settings.etcd_key_file
    assert settings.etcd_user


def test_compose_starts_brokers_with_flags_that_exist():
    text = (DEPLOY / "compose.yaml").read_text()
    commands = re.findall(r"command: \[serve, (.+)\]", text)
    seen = []
    for command in commands:
        options = check_flags([part.strip().strip('"') for part in command.split(",")])
        seen.append((options["broker_id"], options["kafka_listen"], options["advertise"], options["http_listen"]))
        assert f'"127.0.0.1:{9323 + len(seen)}:{9323 + len(seen)}"' in text
    assert seen == [(n, f":{9091 + n}", f"localhost:{9091 + n}", f":{9323 + n}") for n in (1, 2, 3)]
    (key,) = re.findall(r'^x-key: &key "\$\{HEADRACE_ACCESS_KEY:-(.+)\}"$', text, flags=re.MULTILINE)
    assert text.count("HEADRACE_SQS_ACCESS_KEYS: *key\n") == 3
    assert load_settings(environment={"HEADRACE_HTTP_LISTEN": ":9324", "HEADRACE_SQS_ACCESS_KEYS": key}).sqs_access_keys
    for target in re.findall(r"target: (\w+)", text):
        assert f" AS {target}\n" in (DEPLOY / "Dockerfile").read_text()


def test_the_image_is_made_of_files_that_exist():
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    for name in " ".join(copied).split():
        assert (DEPLOY.parent / name).exists(), name
