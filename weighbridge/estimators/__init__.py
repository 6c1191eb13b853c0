"""Evidence estimators: the annealing loop, and the methods that use it."""
