"""Names of subjects and their contexts, in the way of Confluent's registry: `:.CONTEXT:SUBJECT`. Pure.

A context has ids of its own. The default context is `.`, and its subjects are written without it. The subject
`:.CONTEXT:` without a name stands for the context itself, in settings and modes.
"""

from headrace.schemas.errors import InvalidSubject

DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = "__GLOBAL"
MAX_SUBJECT_CHARS = 1000


def context_of(subject: str) -> str:
    """The context of a qualified subject."""
    if subject.startswith(":."):
        end = subject.find(":", 2)
        return subject[1:end] if end > 0 else subject[1:]
    return DEFAULT_CONTEXT


def name_of(subject: str) -> str:
    """The name of a qualified subject without its context."""
    if subject.startswith(":."):
        end = subject.find(":", 2)
        return subject[end + 1 :] if end > 0 else ""
    return subject


def qualified(context: str, subject: str) -> str:
    """A subject of a context; one that names its context already is left as it is."""
    if subject.startswith(":.") or context in ("", DEFAULT_CONTEXT):
        own = context_of(subject)
        return name_of(subject) if own == DEFAULT_CONTEXT and name_of(subject) else subject
    return f":{context}:{subject}"


def context_subject(subject: str) -> str | None:
    """The subject that stands for the context of another one; None for the default context."""
    context = context_of(subject)
    return None if context == DEFAULT_CONTEXT else f":{context}:"


def topic_of(subject: str) -> str:
    """The topic that a subject belongs to: it has the permissions of that topic."""
    name = name_of(subject)
    for suffix in ("-key", "-value"):
        if name.endswith(suffix) and len(name) > len(suffix):
            return name.removesuffix(suffix)
    return name


def check_subject(subject: str) -> str:
    """Return the subject; `InvalidSubject` if it cannot be the name of one."""
    name = name_of(subject)
    if not name or len(subject) > MAX_SUBJECT_CHARS or any(ord(each) < 32 for each in subject):
        raise InvalidSubject(
            f"The specified subject '{subject[:100]}' is not valid: it is empty, too long, or has control characters"
        )
    if name in (GLOBAL_CONTEXT, "__EMPTY"):
        raise InvalidSubject(f"The specified subject '{subject[:100]}' is reserved.")
    return subject
