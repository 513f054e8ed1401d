"""Keys and values of messages in the wire format of schema registries: frames, and a codec for each type of schemas."""
