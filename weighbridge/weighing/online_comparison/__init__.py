"""Several models on one stream, compared chunk by chunk."""
