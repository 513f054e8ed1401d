"""Kafka clients of three libraries that connect securely: each writes some values and reads them in a group."""

import asyncio
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import Consumer, Producer
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

from kafka import KafkaConsumer, KafkaProducer

TIMEOUT_S = 60.0
_TOKEN_LIFETIME_S = 600


@dataclass(frozen=True)
class Credentials:
    """How a client connects: over TLS if there is a CA, with SASL if there is a mechanism."""

    bootstrap: str
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    mechanism: str = ""
    user: str = ""
    password: str = ""
    token: Callable[[], str] | None = None

    @property
    def protocol(self) -> str:
        if self.ca_file is None:
            return "SASL_PLAINTEXT" if self.mechanism else "PLAINTEXT"
        return "SASL_SSL" if self.mechanism else "SSL"

    def confluent(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "security.protocol": self.protocol}
        if self.ca_file is not None:
            settings["ssl.ca.location"] = str(self.ca_file)
        if self.cert_file is not None:
            settings |= {"ssl.certificate.location": str(self.cert_file), "ssl.key.location": str(self.key_file)}
        if self.mechanism:
            settings["sasl.mechanism"] = self.mechanism
        if self.user:
            settings |= {"sasl.username": self.user, "sasl.password": self.password}
        if self.token is not None:
            token = self.token
            settings["oauth_cb"] = lambda _: (token(), time.time() + _TOKEN_LIFETIME_S)
        return settings

    def kafka_python(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"bootstrap_servers": self.bootstrap, "security_protocol": self.protocol}
        if self.ca_file is not None:
            settings["ssl_cafile"] = str(self.ca_file)
        if self.cert_file is not None:
            settings |= {"ssl_certfile": str(self.cert_file), "ssl_keyfile": str(self.key_file)}
        if self.token is not None:
            settings["sasl_oauth_token_provider"] = _PythonTokens(self.token)
        return settings | self._login()

    def aiokafka(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"bootstrap_servers": self.bootstrap, "security_protocol": self.protocol}
        if self.ca_file is not None:
            context = ssl.create_default_context(cafile=str(self.ca_file))
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
            settings["ssl_context"] = context
        if self.token is not None:
            settings["sasl_oauth_token_provider"] = _AioTokens(self.token)
        return settings | self._login()

    def _login(self) -> dict[str, Any]:
        login = {"sasl_mechanism": self.mechanism} if self.mechanism else {}
        return login | ({"sasl_plain_username": self.user, "sasl_plain_password": self.password} if self.user else {})


class _PythonTokens(PythonTokenProvider):  # type: ignore[misc]
    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def token(self) -> str:
        return self._token()


class _AioTokens(AioTokenProvider):  # type: ignore[misc]
    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token()


def confluent(credentials: Credentials, topic: str, values: list[bytes]) -> list[bytes]:
    settings = {**credentials.confluent(), "log_level": 0}
    errors: list[Any] = []
    producer = Producer(settings)
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(TIMEOUT_S) == 0
    assert not errors, errors
    found: list[bytes] = []
    with closing(Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe([topic])
        while len(found) < len(values):
            messages = consumer.consume(len(values), TIMEOUT_S)
            assert messages, f"{len(found)} of {len(values)} came"
            found += [message.value() or b"" for message in messages]
    return found


def kafka_python(credentials: Credentials, topic: str, values: list[bytes]) -> list[bytes]:
    settings = credentials.kafka_python()
    with closing(KafkaProducer(**settings)) as producer:
        for sent in [producer.send(topic, value) for value in values]:
            sent.get(TIMEOUT_S)
    found: list[bytes] = []
    group = {"group_id": topic, "auto_offset_reset": "earliest", "consumer_timeout_ms": TIMEOUT_S * 1000}
    with closing(KafkaConsumer(topic, **settings, **group)) as consumer:
        for message in consumer:
            found.append(message.value)
            if len(found) == len(values):
                break
    return found


def aiokafka(credentials: Credentials, topic: str, values: list[bytes]) -> list[bytes]:
    async def run() -> list[bytes]:
        settings = credentials.aiokafka()
        async with AIOKafkaProducer(**settings) as producer:
            await asyncio.gather(*[producer.send_and_wait(topic, value) for value in values])
        found: list[bytes] = []
        async with AIOKafkaConsumer(topic, **settings, group_id=topic, auto_offset_reset="earliest") as consumer:
            while len(found) < len(values):
                message = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
                found.append(message.value)
        return found

    return asyncio.run(run())


LIBRARIES = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}
