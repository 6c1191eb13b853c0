"""The command ``weighbridge``: evidence and comparison of models from a shell."""

from weighbridge.cli.application import app, main

__all__ = ["app", "main"]
