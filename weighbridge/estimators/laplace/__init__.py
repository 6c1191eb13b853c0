"""The evidence from the modes of the posterior: Laplace's method, and finding the modes."""
