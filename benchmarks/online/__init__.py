"""Models weighed while the rows arrive: Bayes factors, change points, a long watch."""
