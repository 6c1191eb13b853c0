"""Observations in memory: normalising them, checking rows, cutting blocks.

Throughout, *values* are a pytree of NumPy arrays (float64, int64 or bool) with one leading axis.
"""
