"""Accuracy per second beside other tools: one adapter a tool, one process a measurement."""
