"""What a client asks about the registry itself."""

from headrace.schemas.operations.table import LIST_SUBJECTS, RegistryCall, operation
from headrace.schemas.requests import RegistryReply, reply
from headrace.version import commit, version


@operation("GET", "/v1/metadata/id", needs=LIST_SUBJECTS)
async def show_cluster(call: RegistryCall) -> RegistryReply:
    clusters = {"kafka-cluster": call.cluster_id, "schema-registry-cluster": "schema-registry"}
    return reply({"id": "", "scope": {"path": [], "clusters": clusters}})


@operation("GET", "/v1/metadata/version", needs=LIST_SUBJECTS)
async def show_server_version(_: RegistryCall) -> RegistryReply:
    """The version of Headrace: it has no version of Confluent's registry."""
    return reply({"version": f"headrace {version()}", "commitId": commit() or "unknown"})
