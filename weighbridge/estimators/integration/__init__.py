"""Integrals of any function."""
