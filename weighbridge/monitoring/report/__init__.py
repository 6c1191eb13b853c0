"""The report of a watch: one self-contained page made from its events."""
