"""Iterated batch importance sampling, row by row."""
