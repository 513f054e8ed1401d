"""What a broker knows of a client that sends it metrics."""

from uuid import UUID

from headrace.kafka.dispatch import Context
from headrace.monitor.clients.subscriptions import ClientFacts

_MAX_CHARS = 256


def client_facts(ctx: Context, instance_id: UUID) -> ClientFacts:
    name, _, version = ctx.peer.client_software.partition(" ")
    address, _, port = ctx.peer.address.rpartition(":")
    return ClientFacts(
        client_instance_id=str(instance_id),
        client_id=(ctx.header.client_id or "")[:_MAX_CHARS],
        client_software_name=name,
        client_software_version=version,
        client_source_address=address,
        client_source_port=port,
        principal=ctx.peer.subject.principal,
    )
