"""Collectors: each returns metrics of one part of the broker when it is scraped."""
