"""The one annealing loop: particles along a path of densities."""
