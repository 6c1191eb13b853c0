"""Stochastic gradient annealed importance sampling, chunk by chunk."""
