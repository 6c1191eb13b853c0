"""Methods that temper the likelihood of all the data."""
