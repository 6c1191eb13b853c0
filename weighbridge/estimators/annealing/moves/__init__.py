"""How the annealing loop moves its particles."""
