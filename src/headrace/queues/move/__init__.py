"""Moves messages from one queue to another, each exactly once: dead letters and redrives."""
