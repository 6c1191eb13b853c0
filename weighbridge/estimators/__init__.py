"""Evidence estimators: the annealing core, and the methods on it."""
