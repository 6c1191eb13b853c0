"""Markov chains: kernels, warm-up, and ``wb.sample``."""
