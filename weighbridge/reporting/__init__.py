"""The report of a watch: one self-contained page of what its events tell."""

from weighbridge.reporting.chronicle import read_chronicle
from weighbridge.reporting.records import Chronicle
from weighbridge.reporting.writing import render, write_report

__all__ = ["Chronicle", "read_chronicle", "render", "write_report"]
