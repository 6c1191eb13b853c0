"""Nested sampling on a stream: the evidence of each chunk, given the rows before it."""
