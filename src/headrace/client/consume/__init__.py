"""Consuming topics: streams, subscriptions, groups and handlers."""
