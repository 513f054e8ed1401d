"""Changes of a JSON Schema that break readers, in words. Pure."""


def described(kind: str, path: str) -> str:
    """A sentence for a change: what it is, where, and why values of the old schema may not fit."""
    if kind in _SENTENCES:
        return _SENTENCES[kind].format(path=path)
    name, _, change = kind.rpartition("_")
    keyword = name.lower().replace("_", " ")
    return f"{keyword} at {path} {_CHANGES[change]}"


_CHANGES = {
    "ADDED": "is new: values of the old schema need not have it",
    "INCREASED": "is higher than in the old schema",
    "DECREASED": "is lower than in the old schema",
    "NARROWED": "allows less than in the old schema",
    "EXTENDED": "demands more than in the old schema",
    "EXPANDED": "demands more than in the old schema",
    "CHANGED": "is not what it is in the old schema",
    "REMOVED": "is no longer allowed",
}

_SENTENCES = {
    "TYPE_CHANGED": "the type at {path} is another one than in the old schema",
    "TYPE_NARROWED": "the number at {path} must be an integer now",
    "SCHEMA_ADDED": "{path} has a schema now, and could be anything in the old one",
    "REQUIRED_ATTRIBUTE_ADDED": "the property at {path} is required now, and has no default",
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "the required property at {path} is missing in the old schema",
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "the required property at {path} is missing in the old schema",
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": (
        "the property at {path} is new, and the old schema allowed any value of that name"
    ),
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": (
        "the property at {path} is new, and the old schema allowed any value of that name"
    ),
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        "the property at {path} of the old schema is missing, and no others are allowed"
    ),
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "the property at {path} of the old schema is missing, and does not fit the schema of other properties"
    ),
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "the property at {path} is new, and narrower than the old schema of other properties"
    ),
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": "the item at {path} is new, and the old schema allowed any value there",
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        "the item at {path} of the old schema is missing, and no others are allowed"
    ),
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "the item at {path} of the old schema is missing, and does not fit the schema of other items"
    ),
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "the item at {path} is new, and narrower than the old schema of other items"
    ),
    "ENUM_ARRAY_NARROWED": "the list of values at {path} lacks some of the old schema",
    "ENUM_ARRAY_CHANGED": "the list of values at {path} lacks some of the old schema",
    "COMBINED_TYPE_CHANGED": "the schemas at {path} are combined in another way than in the old schema",
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": "the schemas that are combined at {path} do not fit those of the old schema",
    "SUM_TYPE_NARROWED": "there are fewer alternatives at {path} than in the old schema",
    "PRODUCT_TYPE_EXTENDED": "there are more conditions at {path} than in the old schema",
    "NOT_TYPE_EXTENDED": "more values are excluded at {path} than in the old schema",
}
