"""Validates settings of librdkafka when a client is created, so that a misspelt name is an error at once."""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from headrace.client.errors import ClientError
from headrace.config.settings import did_you_mean

_NO_SETTING = "headrace.no.such.setting"
"""librdkafka takes settings one by one, in their order, and stops at the first that it does not know: with this one at
the end they are all checked, and no producer or consumer is made."""

_KNOWN = """
    acks allow.auto.create.topics api.version.request api.version.request.timeout.ms auto.commit.interval.ms
    auto.offset.reset batch.num.messages batch.size bootstrap.servers broker.address.family broker.address.ttl
    check.crcs client.dns.lookup client.id client.rack client.software.name client.software.version
    compression.codec compression.level compression.type connections.max.idle.ms coordinator.query.interval.ms
    debug delivery.report.only.error delivery.timeout.ms enable.auto.commit enable.auto.offset.store
    enable.idempotence enable.metrics.push enable.partition.eof enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.sparse.connections enable.ssl.certificate.verification error_cb
    fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
    https.ca.location https.ca.pem isolation.level linger.ms log.connection.close log.thread.name log_level logger
    max.in.flight max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
    message.max.bytes message.send.max.retries message.timeout.ms metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metadata.request.timeout.ms oauth_cb
    on_commit on_delivery partition.assignment.strategy partitioner plugin.library.paths
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms queued.max.messages.kbytes queued.min.messages receive.message.max.bytes
    reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms request.required.acks retries
    retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism
    sasl.mechanisms sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method
    sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password
    sasl.username security.protocol session.timeout.ms socket.connection.setup.timeout.ms socket.keepalive.enable
    socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
    ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id
    ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password
    ssl.providers ssl.sigalgs.list statistics.interval.ms stats_cb sticky.partitioning.linger.ms throttle_cb
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse transaction.timeout.ms transactional.id
"""
"""Names that a misspelt one is compared with. librdkafka does not list what it knows."""


def check(settings: Mapping[str, Any]) -> None:
    """`ClientError` for the first setting that neither a producer nor a consumer takes."""
    for name, value in settings.items():
        reason = _refusal(Producer, name, value)
        if reason is not None and _refusal(Consumer, name, value) is not None:
            raise ClientError(f"librdkafka does not take the setting {name!r}: {reason}")


def _refusal(kind: Callable[[dict[str, Any]], Any], name: str, value: Any) -> str | None:
    try:
        kind({"group.id": "", name: value, _NO_SETTING: ""})
    except KafkaException as failure:
        text = str(failure.args[0].str()).strip()
    except (TypeError, ValueError) as error:
        text = str(error)
    else:
        return None
    if _NO_SETTING in text:
        return None
    return (
        f"there is no such setting{did_you_mean(str(name), _KNOWN.split())}"
        if "No such configuration property" in text
        else text
    )
