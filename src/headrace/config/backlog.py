"""The settings that bound a backlog: `max.backlog.*` of topics, `queue.max.backlog.*` of queues."""

from headrace.config.settings import Kind, Setting
from headrace.model.backlog import BacklogPolicy
from headrace.model.features import BACKLOGS_LEVEL

POLICIES = tuple(policy.value for policy in BacklogPolicy)
DEFAULT_POLICY = BacklogPolicy.BLOCK.value


def backlog_rows(prefix: str, backlog: str, dropped: str) -> tuple[Setting, ...]:
    """`backlog` says what counts, `dropped` what drop-oldest drops."""
    return (
        Setting(f"{prefix}max.backlog.age.ms", Kind.LONG, 0,
                "The largest age of the oldest message of the backlog; 0: no bound.", 0, level=BACKLOGS_LEVEL),
        Setting(f"{prefix}max.backlog.bytes", Kind.LONG, 0,
                "The largest size of the backlog; 0: no bound.", 0, level=BACKLOGS_LEVEL),
        Setting(f"{prefix}max.backlog.messages", Kind.LONG, 0,
                f"The most messages in the backlog: {backlog}. 0: no bound.", 0, level=BACKLOGS_LEVEL),
        Setting(f"{prefix}max.backlog.policy", Kind.STRING, DEFAULT_POLICY,
                "What happens at the bound of the backlog. block: producers wait until there is room. refuse: they get "
                f"an error that says so. drop-oldest: {dropped}.", choices=POLICIES, level=BACKLOGS_LEVEL),
    )  # fmt: skip
