"""Hostile CSV and JSON lines: quotes, wrong kinds, endless lines and fields, damage at any byte."""

from __future__ import annotations

import functools
import gzip
import io
import random
from collections.abc import Callable
from pathlib import Path

from benchmarks.weather.rows import POLICIES, Row, csv_text, draw, json_lines, judge, read_still
from benchmarks.weather.verdict import Came, Kind, Place, Verdict
from weighbridge import WeighbridgeError

Spoil = Callable[[random.Random, bytes], bytes]

TEXTS: dict[str, Callable[[list[Row]], str]] = {".csv": csv_text, ".jsonl": json_lines}
# Lines that tell the columns: a file without them cannot be read, whatever the policy.
HEAD = 1


def attack_lines(suffix: str, spoil: Spoil, place: Place, number: int = 300) -> Verdict:
    """Rows of a file of which some bytes are spoilt: the other rows count, or it is told."""
    luck = place.luck
    rows = draw(luck, number)
    good = TEXTS[suffix](rows).encode()
    bad = spoil(luck, good)
    path = place.folder / f"rows{suffix}"
    path.write_bytes(bad)
    kept = set(bad.split(b"\n"))
    lines = good.split(b"\n")[(suffix == ".csv") : -1]
    wanted = [row for row, line in zip(rows, lines) if line in kept]
    changed = len(kept - set(good.split(b"\n")))
    policy = luck.choice(POLICIES)
    head = good.split(b"\n")[0]
    try:
        found = read_still(path, policy)
    except WeighbridgeError as error:
        if policy != "raise" and bad.startswith(head + b"\n"):
            return Verdict(Came.STOPPED, f"{policy}: {error}")
        raise
    return judge(found, wanted, changed)


def attack_pipe(text_of: Callable[[list[Row]], str], spoil: Spoil, place: Place) -> Verdict:
    """The same on a pipe, which gives some bytes at a time; a header and a first row are good."""
    luck = place.luck
    rows = draw(luck, 300)
    good = text_of(rows).encode()
    lines = good.split(b"\n")
    start = sum(len(line) + 1 for line in lines[:3])  # what tells columns and types
    bad = good[:start] + spoil(luck, b"\n" + good[start:])[1:]
    kept = set(bad.split(b"\n"))
    wanted = [row for row, line in zip(rows, lines[-1 - len(rows) : -1]) if line in kept]
    policy = luck.choice(POLICIES)
    pipe = Pieces(bad, max(luck.choice([1, 100, 1 << 16]), len(bad) >> 12))
    try:
        found = read_still(pipe, policy, place.folder)
    except WeighbridgeError as error:
        if policy != "raise":
            return Verdict(Came.STOPPED, f"{policy}: {error}")
        raise
    return judge(found, wanted, len(kept - set(lines)))


class Pieces(io.BytesIO):
    """A stream that gives a few bytes at a time."""

    def __init__(self, text: bytes, most: int) -> None:
        super().__init__(text)
        self.most = most

    def read1(self, size: int | None = -1) -> bytes:
        """Some bytes."""
        return super().read1(self.most)


def stray_quote(luck: random.Random, data: bytes) -> bytes:
    """One quote anywhere after the header."""
    at = luck.randrange(data.index(b"\n") + 1, len(data))
    return data[:at] + b'"' + data[at:]


def many_quotes(luck: random.Random, data: bytes) -> bytes:
    """Quotes at several places."""
    for _ in range(luck.randint(2, 20)):
        data = stray_quote(luck, data)
    return data


def cut_off(luck: random.Random, data: bytes) -> bytes:
    """The end is missing."""
    return data[: luck.randrange(1, len(data))]


def flipped(luck: random.Random, data: bytes) -> bytes:
    """Some bytes are others."""
    spoilt = bytearray(data)
    for _ in range(luck.randint(1, 8)):
        spoilt[luck.randrange(len(data))] = luck.randrange(256)
    return bytes(spoilt)


def text_in_a_row(luck: random.Random, data: bytes) -> bytes:
    """A cell that is no number, a row that is too long or too short."""
    lines = data.split(b"\n")
    for _ in range(luck.randint(1, 3)):
        at = luck.randrange(1, len(lines) - 1)
        first, _, last = lines[at].partition(b",")
        lines[at] = luck.choice([first + b",bob", first, first + b"," + last + b",1", b"x,y,z,"])
    return b"\n".join(lines)


def not_an_object(luck: random.Random, data: bytes) -> bytes:
    """Lines that are JSON and no row, or are no JSON."""
    lines = data.split(b"\n")
    odd = [b"[1, 2]", b"null", b"{", b'{"a": 1}', b'{"a": "x", "y": 2}', b"\xff\xfe", b"1e999"]
    odd += [b"[" * 5000, b'{"a": 1, "y": 1' + b"0" * 5000 + b"}", b'{"a": [1], "y": 2}']
    for _ in range(luck.randint(1, 5)):
        lines[luck.randrange(1, len(lines) - 1)] = luck.choice(odd)
    return b"\n".join(lines)


def quote_in_a_large_file(place: Place) -> Verdict:
    """Three megabytes after one quote: one pass, not one of each block's length cubed."""
    return attack_lines(".csv", stray_quote, place, number=80_000)


def _refused_or(place: Place, suffix: str, content: bytes) -> Verdict:
    """A file from which nothing can be read: an error that says so, whatever the policy."""
    path = place.folder / f"rows{suffix}"
    path.write_bytes(content)
    found = read_still(path, place.luck.choice(POLICIES))
    if found.told or found.bad:
        return Verdict(Came.NOTICE, (found.told or [f"{found.bad} bad rows"])[0])
    return Verdict(Came.DIFFERENT, f"{len(found.rows)} rows were read without a word")


def gzip_named_csv(place: Place) -> Verdict:
    text = csv_text(draw(place.luck, place.luck.randint(10, 5000))).encode()
    return _refused_or(place, place.luck.choice([".csv", ".jsonl"]), gzip.compress(text))


def carriage_returns(place: Place) -> Verdict:
    """Lines that end as on a Mac of 1990: read, or refused."""
    rows = draw(place.luck, 200)
    path = place.folder / "rows.csv"
    path.write_bytes(csv_text(rows).replace("\n", "\r").encode())
    return judge(read_still(path, place.luck.choice(POLICIES)), rows)


def unclosed_header(place: Place) -> Verdict:
    """A quote in the header that nothing closes."""
    rows = csv_text(draw(place.luck, place.luck.choice([10, 50_000])))
    return _refused_or(place, ".csv", b'"' + rows.encode())


def large_field(place: Place) -> Verdict:
    """A header, or a cell, of more than 128 kB."""
    size = place.luck.choice([131_073, 1_000_000, 5_000_000])
    if place.luck.random() < 0.5:
        return _refused_or(place, ".csv", b"a," + b"y" * size + b"\n1,x\n2,x\n")
    spoil = functools.partial(_with_line, b"0," + b"9" * size)
    return attack_lines(".csv", spoil, place)


def endless_line(suffix: str, mebibytes: int, place: Place) -> Verdict:
    """A line that does not end, somewhere in the file."""
    spoil = functools.partial(_with_line, b"7" * (mebibytes << 20))
    return attack_lines(suffix, spoil, place)


def _with_line(line: bytes, luck: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    lines.insert(luck.randrange(2, len(lines) - 1), line)
    return b"\n".join(lines)


def _with_endless_line(luck: random.Random, data: bytes) -> bytes:
    return _with_line(b"7" * (40 << 20), luck, data)


def many_columns(suffix: str, place: Place) -> Verdict:
    """A hundred thousand columns: refused, or read, but not for ever."""
    number = 100_000
    path = place.folder / f"rows{suffix}"
    if suffix == ".csv":
        head = ",".join(f"c{k}" for k in range(number))
        body = ",".join(["1.5"] * number)
        path.write_text(f"{head}\n{body}\n{body}\n")
    else:
        body = ", ".join(f'"c{k}": 1.5' for k in range(number))
        path.write_text(f"{{{body}}}\n{{{body}}}\n")
    found = read_still(path, place.luck.choice(POLICIES))
    whole = len(found.rows) == 2 and len(found.rows[0]) == number
    return Verdict(Came.RIGHT if whole else Came.DIFFERENT, f"{len(found.rows)} rows")


def empty_or_header_only(place: Place) -> Verdict:
    path = Path(place.folder / f"rows{place.luck.choice(['.csv', '.jsonl'])}")
    path.write_bytes(place.luck.choice([b"", b"\n\n\n", b"a,y\n", b"\xef\xbb\xbf", b"\x00" * 500]))
    found = read_still(path, place.luck.choice(POLICIES))
    return Verdict(Came.DIFFERENT, f"{len(found.rows)} rows of nothing")


def _csv(name: str, spoil: Spoil, times: int) -> Kind:
    return Kind("CSV", name, functools.partial(attack_lines, ".csv", spoil), times)


def _json(name: str, spoil: Spoil, times: int) -> Kind:
    return Kind("JSON lines", name, functools.partial(attack_lines, ".jsonl", spoil), times)


def _pipe(name: str, text_of: Callable[[list[Row]], str], spoil: Spoil, times: int) -> Kind:
    return Kind("pipe", name, functools.partial(attack_pipe, text_of, spoil), times)


KINDS = (
    _csv("one stray quote", stray_quote, 200),
    _csv("several stray quotes", many_quotes, 100),
    Kind("CSV", "a stray quote in 3 MB", quote_in_a_large_file, 4),
    _csv("cut off at a random byte", cut_off, 150),
    _csv("random bytes flipped", flipped, 200),
    _csv("text cells and ragged rows", text_in_a_row, 100),
    Kind("CSV", "gzip under the name of CSV or JSON lines", gzip_named_csv, 20),
    Kind("CSV", "carriage returns only", carriage_returns, 10),
    Kind("CSV", "a header that a quote leaves open", unclosed_header, 10),
    Kind("CSV", "fields over 128 kB", large_field, 10),
    Kind("CSV", "a line of 100 MB", functools.partial(endless_line, ".csv", 100), 2),
    Kind("CSV", "100,000 columns", functools.partial(many_columns, ".csv"), 2),
    Kind("CSV", "no rows, or no text at all", empty_or_header_only, 20),
    _json("one stray quote", stray_quote, 100),
    _json("cut off at a random byte", cut_off, 100),
    _json("random bytes flipped", flipped, 200),
    _json("lines that are no rows", not_an_object, 100),
    Kind("JSON lines", "a line of 100 MB", functools.partial(endless_line, ".jsonl", 100), 2),
    Kind("JSON lines", "100,000 columns", functools.partial(many_columns, ".jsonl"), 2),
    _pipe("CSV with one stray quote", csv_text, stray_quote, 50),
    _pipe("CSV with several stray quotes", csv_text, many_quotes, 50),
    _pipe("CSV with text cells and ragged rows", csv_text, text_in_a_row, 50),
    _pipe("CSV with a line of 40 MB", csv_text, _with_endless_line, 2),
    _pipe("JSON lines that are no rows", json_lines, not_an_object, 50),
    _pipe("JSON with a line of 40 MB", json_lines, _with_endless_line, 2),
)
