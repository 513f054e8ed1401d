"""All routes: importing the modules of the resources registers theirs."""

from headrace.admin import (  # noqa: F401
    acls,
    audit_events,
    clients,
    cluster,
    dead_letters,
    groups,
    health,
    link_figures,
    links,
    live,
    messages,
    openapi,
    overview,
    pipelines,
    queue_messages,
    queues,
    quotas,
    reassignments,
    redrives,
    scale,
    session,
    subjects,
    tail,
    topics,
    transactions,
    users,
)
from headrace.admin.routes import ROUTES

ALL_ROUTES = ROUTES
