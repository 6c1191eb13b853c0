"""Rough weather: attacks on files, feeds, watches and saved runs, and what comes of them."""
