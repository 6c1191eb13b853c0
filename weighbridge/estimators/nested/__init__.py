"""Nested sampling: live points climb the likelihood, and the prior mass above them is known."""
