"""Traps: problems with exact evidences that mislead samplers, generated from a seed."""
