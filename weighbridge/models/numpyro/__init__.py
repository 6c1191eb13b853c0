"""Models that are written as NumPyro functions."""
