"""NUTS beside the NUTS of NumPyro and of BlackJAX."""
