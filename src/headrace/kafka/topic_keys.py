"""Topics in requests that name them by name in older versions and by id in newer ones, against one cluster image."""

from typing import Any
from uuid import UUID

from headrace.model.errors import HeadraceError, UnknownPartition, UnknownTopic, UnknownTopicId
from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage, TopicImage


class TopicKeys:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def name_of(self, topic: Any) -> str | None:
        """The name of the topic that an entry of a request speaks of; None for an id that nothing has."""
        name: str | None = getattr(topic, "name", None)
        if name is not None:
            return name
        found = self._by_id(topic.topic_id)
        return None if found is None else found.name

    def problem(self, topic: Any, index: int) -> HeadraceError | None:
        """Why there is no such partition, if there is none."""
        name: str | None = getattr(topic, "name", None)
        if name is not None:
            found = self._image.topics.get(TopicName(name))
            if found is None:
                return UnknownTopic(f"the topic {name} does not exist")
        else:
            found = self._by_id(topic.topic_id)
            if found is None:
                return UnknownTopicId(f"there is no topic with the id {topic.topic_id}")
        if not 0 <= index < len(found.partitions):
            return UnknownPartition(f"the topic {found.name} has no partition {index}")
        return None

    def fields(self, topic: Any) -> dict[str, Any]:
        """What names the topic in the answer, as the request did."""
        return {"name": getattr(topic, "name", ""), "topic_id": getattr(topic, "topic_id", None)}

    def by_name(self, name: str) -> dict[str, Any]:
        """What names a topic in an answer, where the request did not."""
        found = self._image.topics.get(TopicName(name))
        return {"name": name, "topic_id": None if found is None else found.topic_id}

    def _by_id(self, topic_id: UUID | None) -> TopicImage | None:
        return None if topic_id is None else self._image.topic_by_id(topic_id)
