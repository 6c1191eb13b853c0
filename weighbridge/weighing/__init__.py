"""The evidence of one model, the comparison of several, and both online."""
