"""Pipelines as they report themselves, and what is asked of them: to stop, to start, to replay their dead letters.

The permissions are those on the consumer group of a pipeline, `pipeline-NAME`: a pipeline that commits its offsets
there (READ) may report itself. What is asked of a pipeline is done by the process that reports it, with its own
credentials, after its next report.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError, forbidden
from headrace.admin.pages import Listing, Page, PageQuery
from headrace.admin.routes import Access, AdminReply, AdminRequest, RouteNeed, route
from headrace.model.acls import AclOperation, ResourceType
from headrace.model.errors import CoordinatorError, PeerUnavailable
from headrace.model.pipeline_report import NAME, DesiredState, PipelineReport, ReportAnswer, group_of
from headrace.monitor.pipelines.entries import PipelineDetail, PipelineEntry

_GROUP, _PREFIX = ResourceType.GROUP, group_of("")
SHOWN_PIPELINES = RouteNeed(AclOperation.DESCRIBE, _GROUP, access=Access.SHOWN, prefix=_PREFIX)
DESCRIBE_PIPELINE = RouteNeed(AclOperation.DESCRIBE, _GROUP, "pipeline", prefix=_PREFIX)
REPORT_PIPELINE = RouteNeed(AclOperation.READ, _GROUP, "pipeline", prefix=_PREFIX)
CONTROL_PIPELINE = RouteNeed(AclOperation.ALTER_CONFIGS, _GROUP, "pipeline", prefix=_PREFIX)
FORGET_PIPELINE = RouteNeed(AclOperation.DELETE, _GROUP, "pipeline", prefix=_PREFIX)


class ReplayRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: Annotated[str, Meta(max_length=1000)] = ""
    """Only letters with this in their reason; all if it is empty."""


_PIPELINES: Listing[PipelineEntry, PipelineEntry] = Listing(PipelineEntry, lambda each: each, name="name")


@route("GET", "/pipelines", needs=SHOWN_PIPELINES, query=PageQuery, answer=Page[PipelineEntry])
async def list_pipelines(request: AdminRequest) -> AdminReply:
    """The pipelines that have reported to the cluster."""
    query = request.query(PageQuery)
    found = await request.services.pipelines.list()
    return AdminReply(_PIPELINES.page(_shown(request, found), query))


async def shown_pipelines(request: AdminRequest) -> list[PipelineEntry]:
    """The pipelines that the person may see; none while the broker that has them does not answer."""
    try:
        return _shown(request, await request.services.pipelines.list())
    except (CoordinatorError, PeerUnavailable):
        return []


def _shown(request: AdminRequest, found: list[PipelineEntry]) -> list[PipelineEntry]:
    return [each for each in found if request.shows(_GROUP, group_of(each.name))]


@route("GET", "/pipelines/{pipeline}", needs=DESCRIBE_PIPELINE, answer=PipelineDetail)
async def describe_pipeline(request: AdminRequest) -> AdminReply:
    """A pipeline with its graph, the end of its log, and an hour of figures."""
    return AdminReply(await request.services.pipelines.describe(request.parameters["pipeline"]))


@route("DELETE", "/pipelines/{pipeline}", needs=FORGET_PIPELINE)
async def forget_pipeline(request: AdminRequest) -> AdminReply:
    """Remove a pipeline that does not report any more from the list. Its topics and offsets stay."""
    await request.services.pipelines.forget(request.parameters["pipeline"])
    return AdminReply(None, 204)


@route(
    "POST",
    "/pipelines/{pipeline}/report",
    needs=REPORT_PIPELINE,
    body=PipelineReport,
    answer=ReportAnswer,
    is_audited=False,
    is_read=True,
)
async def report_pipeline(request: AdminRequest) -> AdminReply:
    """Used by pipelines themselves, every few seconds. The answer says what is asked of the pipeline."""
    name = request.parameters["pipeline"]
    if NAME.fullmatch(name) is None:
        raise AdminError(400, "invalid_name", f"{name!r} cannot be a pipeline's name: letters, digits, - and _ only")
    return AdminReply(await request.services.pipelines.report(name, request.read(PipelineReport)))


@route("POST", "/pipelines/{pipeline}/start", needs=CONTROL_PIPELINE, answer=PipelineDetail)
async def start_pipeline(request: AdminRequest) -> AdminReply:
    """Ask for a stopped pipeline to run again; it needs a supervisor (`headrace pipeline start`)."""
    return await _start_or_stop(request, "running")


@route("POST", "/pipelines/{pipeline}/stop", needs=CONTROL_PIPELINE, answer=PipelineDetail)
async def stop_pipeline(request: AdminRequest) -> AdminReply:
    """Ask for a pipeline to stop after its batch. One without a supervisor ends."""
    return await _start_or_stop(request, "stopped")


async def _start_or_stop(request: AdminRequest, desired: DesiredState) -> AdminReply:
    return AdminReply(await request.services.pipelines.start_or_stop(request.parameters["pipeline"], desired), 202)


@route("POST", "/pipelines/{pipeline}/replay", needs=CONTROL_PIPELINE, body=ReplayRequest, answer=PipelineDetail)
async def replay_pipeline(request: AdminRequest) -> AdminReply:
    """Ask for dead letters to be sent back to their topics, which needs WRITE on these; reports show the progress."""
    wanted, pipelines = request.read(ReplayRequest), request.services.pipelines
    found = await pipelines.describe(request.parameters["pipeline"])
    for topic in found.source_topics:
        if not request.allows(AclOperation.WRITE, ResourceType.TOPIC, topic):
            raise forbidden(f"{request.subject.principal} lacks the permission write on the topic {topic}")
    return AdminReply(await pipelines.replay_letters(found.name, wanted.reason), 202)
