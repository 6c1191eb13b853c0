"""Results for the user: evidence, posterior, predictions."""
