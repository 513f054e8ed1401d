"""All routes: importing the modules of the resources registers theirs."""

from headrace.admin import (  # noqa: F401
    dead_letters,
    groups,
    health,
    messages,
    pipelines,
    queue_messages,
    queues,
    redrives,
    session,
    topics,
    transactions,
    users,
)
from headrace.admin.routes import ROUTES

ALL_ROUTES = ROUTES
