"""The 23 actions of SQS. Importing this registers them."""

from headrace.sqs.actions import (
    change_message_visibility,
    create_queue,
    delete_message,
    delete_queue,
    list_queues,
    move_tasks,
    permissions,
    purge_queue,
    queue_attributes,
    receive_message,
    send_message,
    tags,
)

__all__ = [
    "change_message_visibility",
    "create_queue",
    "delete_message",
    "delete_queue",
    "list_queues",
    "move_tasks",
    "permissions",
    "purge_queue",
    "queue_attributes",
    "receive_message",
    "send_message",
    "tags",
]
