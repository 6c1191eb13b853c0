"""Bounds of the log evidence from annealing in both directions."""
