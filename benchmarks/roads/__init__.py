"""Roads to the evidence other than tempering: bridges, Laplace, importance sampling, ratios."""
