"""Measurements of weighbridge, a folder a question; what they measured is in ``results``."""
