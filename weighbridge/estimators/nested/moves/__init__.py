"""Moves within a likelihood contour: each leaves the prior above the contour unchanged."""
