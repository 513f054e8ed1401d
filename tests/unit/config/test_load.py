from pathlib import Path

import pytest

from headrace.config.broker import BROKER_SETTINGS, TOPIC_DEFAULTS, BrokerSettings, broker_settings
from headrace.config.load import environment_name, load_settings
from headrace.config.topic import TOPIC_SETTINGS, TopicSettings
from headrace.model.errors import SettingsError
from headrace.model.image import Endpoint


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "headrace.toml"
    path.write_text(text)
    return path


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    file = write(tmp_path, "broker.id = 1\nnum.partitions = 7\n[log.retention]\nms = 60000\nbytes = 5\n")
    environment = {"HEADRACE_BROKER_ID": "2", "HEADRACE_NUM_PARTITIONS": "8", "PATH": "/bin"}
    settings = load_settings(flags={"broker.id": "3"}, environment=environment, config_file=file)
    assert settings.broker_id == 3
    assert settings.num_partitions == 8
    assert settings.topic_defaults.retention_ms == 60000
    assert settings.value("log.retention.bytes") == 5
    assert settings.max_connections == BrokerSettings().max_connections
    assert settings.given == {"broker.id", "num.partitions", "log.retention.ms", "log.retention.bytes"}


def test_a_list_and_a_boolean_in_toml(tmp_path: Path) -> None:
    file = write(tmp_path, 'log.cleanup.policy = ["compact", "delete"]\nauto.create.topics.enable = false\n')
    settings = load_settings(config_file=file)
    assert settings.topic_defaults.cleanup_policy == ("compact", "delete")
    assert settings.auto_create_topics_enable is False


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("log.retention.mss = 1", "unknown setting log.retention.mss; did you mean log.retention.ms?"),
        ("retention.ms = 1", "default for all topics is log.retention.ms"),
        ('log.dirs = "/x"', "did you mean data.dir?"),
        ("num.partitions = 0", "num.partitions=0 is out of range: it must be at least 1"),
        ("num.partitions = 1.5", "num.partitions=1.5 is not a whole number"),
        ("num.partitions = 2026-01-01", "must be a string, a number"),
        ("num.partitions = ", "is not valid TOML"),
        ('"num.partitions" = 1\n[num]\npartitions = 2', "num.partitions is set twice"),
    ],
)
def test_an_error_in_the_file_names_file_and_setting(tmp_path: Path, text: str, sentence: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load_settings(config_file=file)
    assert str(caught.value).startswith(f"{file}: ")
    assert sentence in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.toml: cannot be read: No such file"):
        load_settings(config_file=tmp_path / "none.toml")


def test_an_error_in_the_environment_names_it() -> None:
    with pytest.raises(
        SettingsError, match="environment: unknown setting HEADRACE_BROKERID; did you mean HEADRACE_BRO"
    ):
        load_settings(environment={"HEADRACE_BROKERID": "1"})
    with pytest.raises(SettingsError, match=r"environment: broker\.id=x is not a whole number"):
        load_settings(environment={"HEADRACE_BROKER_ID": "x"})


def test_variables_that_kubernetes_and_the_command_line_set_are_left_alone() -> None:
    environment = {
        "HEADRACE_SERVICE_HOST": "10.0.0.1",
        "HEADRACE_SERVICE_PORT_KAFKA": "9092",
        "HEADRACE_PORT": "tcp://10.0.0.1:9092",
        "HEADRACE_PORT_9092_TCP_ADDR": "10.0.0.1",
        "HEADRACE_CONFIG": "x.toml",
        "HEADRACE_BOOTSTRAP": "localhost:9092",
        "HEADRACE_LINK_PASSWORD_EU": "secret",
    }
    assert load_settings(environment=environment) == BrokerSettings()


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({"kafka.listen": "localhost"}, "has no port"),
        ({"kafka.listen": "PLAINTEXT://localhost:9092"}, "without a scheme"),
        ({"kafka.listen": "::1:9092"}, "in brackets"),
        ({"kafka.listen": "localhost:99999"}, "port from 0 to 65535"),
        ({"advertise": ":9092"}, "has no host"),
        ({"data.dir": ""}, "data.dir is empty"),
        ({"queued.max.request.bytes": "1"}, "could never be read"),
        ({"log.cleaner.io.max.bytes.per.second": "nan"}, "not a finite number"),
        ({"log.flush.policy": "maybe"}, "use ack or os"),
        ({"unclean.leader.election.enable": "true"}, "loses acknowledged records"),
    ],
)
def test_values_that_cannot_work_are_refused_on_the_command_line(texts: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        load_settings(flags=texts)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [(":9092", Endpoint("", 9092)), ("[::1]:0", Endpoint("::1", 0)), ("h.example:1", Endpoint("h.example", 1))],
)
def test_listen_addresses(text: str, endpoint: Endpoint) -> None:
    assert broker_settings({"kafka.listen": text, "insecure": "true"}).listen == endpoint


def test_every_setting_can_be_given_as_its_own_default() -> None:
    defaults = BrokerSettings()
    texts = {name: row.render(defaults.value(name)) for name, row in BROKER_SETTINGS.items()}
    environment = {environment_name(BROKER_SETTINGS[name]): text for name, text in texts.items()}
    loaded = load_settings(environment=environment)
    assert {name: loaded.value(name) for name in texts} == {name: defaults.value(name) for name in texts}
    assert all(row.default == defaults.value(name) for name, row in BROKER_SETTINGS.items())


def test_every_topic_setting_has_a_broker_default_and_an_attribute() -> None:
    rows = {name: row for name, row in TOPIC_SETTINGS.items() if row.has_effect}
    # These are for the owner of each topic to decide.
    of_owners = {"errors.deadletterqueue.group.enable"}
    of_owners |= {
        f"{part}.{name}" for part in ("key", "value") for name in ("schema.validation", "subject.name.strategy")
    }
    of_owners |= {name for name in rows if name.startswith("max.backlog.")}
    assert {row.name for row in TOPIC_DEFAULTS.values() if row.has_effect} == set(rows) - of_owners
    assert {row.attribute for row in rows.values()} == (set(TopicSettings.__dataclass_fields__) - {"queue"})


def test_kafkas_settings_without_effect_may_be_in_the_config_file(tmp_path: Path) -> None:
    settings = load_settings(config_file=write(tmp_path, "num.io.threads = 16\nlog.preallocate = true\n"))
    assert (settings.value("num.io.threads"), settings.value("log.preallocate")) == (16, True)
    assert settings.value("num.network.threads") == 3
    with pytest.raises(SettingsError, match=r"ssl\.client\.auth=required is not supported: security is"):
        load_settings(flags={"ssl.client.auth": "required"})
    with pytest.raises(SettingsError, match=r"Kafka's PLAINTEXT is plain"):
        load_settings(flags={"listeners": "PLAINTEXT://:9092"})


def test_a_name_that_is_also_the_start_of_another_can_be_quoted(tmp_path: Path) -> None:
    settings = load_settings(config_file=write(tmp_path, '"max.connections" = 9\nmax.connections.per.ip = 3\n'))
    assert (settings.max_connections, settings.max_connections_per_ip) == (9, 3)
