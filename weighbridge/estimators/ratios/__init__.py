"""Ratios of two evidences that need no evidence: nested models, indicators, importance weights."""
