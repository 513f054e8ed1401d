"""The processes of `headrace work`: each imports an application and runs the handlers and workers of its client."""
