"""The moves of particles in the annealing loop."""
