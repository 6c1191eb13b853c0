"""The model, its priors, its densities (``targets``), and the gate for its rows."""
