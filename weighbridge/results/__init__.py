"""What a user gets back: evidence, posterior, predictions."""
