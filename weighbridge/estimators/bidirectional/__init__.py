"""Bounds of the log evidence from both ends of a path."""
