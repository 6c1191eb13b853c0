"""The annealing loop: it moves particles along a path of densities."""
