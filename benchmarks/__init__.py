"""Measurements of weighbridge; each module writes what it measured to ``benchmarks/results``."""
