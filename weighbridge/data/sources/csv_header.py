"""The header of a CSV file: its column names, or an error that names the real file type."""

from __future__ import annotations

import csv
from typing import Any

from weighbridge.core.errors import DataError
from weighbridge.data.columns import looks_numeric
from weighbridge.data.sources.csv_records import LONGEST_RECORD, Quotes, scan_quotes, shorten
from weighbridge.data.sources.reading import NoRowsError
from weighbridge.data.values import refuse_duplicates

# First bytes of files that often have a wrong name, with the file type and the remedy.
_UNPACK = "Unpack it first, and give the file inside."
_ENCODED = "Save it as UTF-8."
_MARKS = {
    b"\x1f\x8b": ("compressed with gzip", _UNPACK),
    b"PK\x03\x04": ("a zip archive, or a spreadsheet", "Unpack it, or export it as CSV."),
    b"\xfd7zXZ\x00": ("compressed with xz", _UNPACK),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", _UNPACK),
    b"BZh": ("compressed with bzip2", _UNPACK),
    b"PAR1": ("Parquet", "Name it .parquet."),
    b"\xff\xfe": ("text in UTF-16", _ENCODED),
    b"\xfe\xff": ("text in UTF-16", _ENCODED),
}

MOST_LINES = 1000  # largest number of lines of a header with quoted names
# Largest number of columns read if none are named: each needs time and memory, used or not.
MOST_COLUMNS = 1 << 15


def read_header(stream: Any) -> tuple[list[str], int]:
    """The column names, and the number of the line after the header."""
    lines = 0
    while True:
        text = stream.readline(LONGEST_RECORD + 1)
        if not text:
            raise NoRowsError(
                "The CSV is empty. It needs a header line with column names, then rows."
            )
        if not lines:
            refuse_other_kinds(text)
        lines += 1
        if text.strip():
            break
    text, more = _complete_header(stream, text, lines)
    if b"\0" in text:
        raise DataError(
            "The header has NUL bytes: this is not CSV, or is text in UTF-16. Save it as UTF-8."
        )
    try:
        header = next(csv.reader([text.decode("utf-8-sig", "replace")]))
    except csv.Error as error:
        raise DataError(f"The header cannot be read ({error}). Correct the first line.") from error
    _check_names(header)
    return header, lines + more + 1


def refuse_other_kinds(begins: bytes) -> None:
    """Raise a DataError if the first bytes show that the file is of another type."""
    for mark, (kind, remedy) in _MARKS.items():
        if begins.startswith(mark):
            raise DataError(f"This is not CSV: it is {kind}. {remedy}")


def _complete_header(stream: Any, text: bytes, line: int) -> tuple[bytes, int]:
    """The header with further lines that belong to quoted names, and the number of these lines."""
    quotes, more, header = Quotes(), 0, bytearray(text)
    while True:
        size = len(header)
        quotes = scan_quotes(header, quotes, ended=False)
        if size <= LONGEST_RECORD and header.endswith(b"\n") and quotes.opened < 0:
            break
        header += stream.readline(max(0, LONGEST_RECORD + 1 - size))
        if len(header) == size:
            if size > LONGEST_RECORD:
                raise DataError(
                    f"The header is longer than {LONGEST_RECORD >> 20} MiB: a quote is not closed, "
                    "or line ends are missing. Correct the first line."
                )
            quotes = scan_quotes(header, quotes, ended=True)
            break
        more += 1
        if more > MOST_LINES:
            break
    if quotes.opened >= 0:
        raise DataError(
            f"A quote opened in the header, line {line}, is never closed. Correct that line."
        )
    names = bytes(header).rstrip(b"\r\n")
    if b"\r" in names and not more and b'"' not in names:
        raise DataError(
            "The lines end with only a carriage return (CR). Save the file with line feeds, for "
            "example with: tr '\\r' '\\n' < old.csv > new.csv"
        )
    return bytes(header), more


def _check_names(header: list[str]) -> None:
    if all(map(looks_numeric, header)):
        raise DataError(
            f"The CSV has no header: its first line is {shorten(repr(','.join(header)))}. "
            "Add a first line with the column names."
        )
    refuse_duplicates(header)
