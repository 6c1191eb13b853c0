"""Weighted draws from a proposal: their evidence, its error and when not to believe it."""
