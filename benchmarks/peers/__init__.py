"""Accuracy per second beside other tools: one adapter per tool, one process per measurement."""
