"""Nested sampling: is it right, is its error true, how fast is it, and how does it grow?"""
