"""All routes: importing the modules of the resources registers theirs."""

from headrace.admin import health, messages, session, topics, users  # noqa: F401
from headrace.admin.routes import ROUTES

ALL_ROUTES = ROUTES
