"""Coordinators over internal topics: an operation writes records, and state changes only by applying them."""
