"""Dead letters of pipelines: written, listed and replayed."""
