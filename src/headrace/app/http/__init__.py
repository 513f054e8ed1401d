"""HTTP/1.1 in the broker's event loop: a listener with limits, and a protocol on `httptools` that runs ASGI apps."""
