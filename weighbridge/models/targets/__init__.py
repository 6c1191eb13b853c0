"""Callable log densities that are pytrees: exact, tempered, or on mini-batches.

A target is the log prior plus a sum of likelihood terms. What changes while sampling (the
power, the mini-batch) is a leaf of the pytree, so that changing it never retraces.
"""
