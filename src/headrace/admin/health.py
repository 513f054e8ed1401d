"""The health of the cluster over HTTP: the list that `headrace health`, the dashboard and the alerts show."""

from headrace.admin.routes import DESCRIBE_CLUSTER, AdminReply, AdminRequest, route
from headrace.monitor.health.problem import HealthView


@route("GET", "/health", needs=DESCRIBE_CLUSTER, answer=HealthView)
async def show_health(request: AdminRequest) -> AdminReply:
    """The problems of the cluster in words, the worst first, each with what to do."""
    return AdminReply(await request.services.health.cluster())
