"""Sources of observations: files, streams and chunks, read block by block in bounded memory."""

from weighbridge.sources.columns import check_present, check_request, not_numbers, select
from weighbridge.sources.csv_file import count_csv_rows, read_csv
from weighbridge.sources.files import expand, head_of, head_of_all, is_readable, read_file
from weighbridge.sources.opening import open_source
from weighbridge.sources.reading import Block, FileChangedError, NoRowsError, file_changed
from weighbridge.sources.source import Source

__all__ = [
    "Block",
    "FileChangedError",
    "NoRowsError",
    "Source",
    "check_present",
    "check_request",
    "count_csv_rows",
    "expand",
    "file_changed",
    "head_of",
    "head_of_all",
    "is_readable",
    "not_numbers",
    "open_source",
    "read_csv",
    "read_file",
    "select",
]
