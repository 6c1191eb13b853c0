"""The model, its priors, its densities (``targets``), and the checks of its rows."""
