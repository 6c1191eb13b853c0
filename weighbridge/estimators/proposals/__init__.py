"""Normalised densities to draw from, and the density of parameters and data that they approach."""
