"""Checks of models and of samplers."""
