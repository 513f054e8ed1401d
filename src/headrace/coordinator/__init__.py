"""Coordinators over internal topics: records first, then replay."""
