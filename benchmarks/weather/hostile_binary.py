"""Hostile NPZ and Parquet: cut off, flipped, and arrays that claim terabytes."""

from __future__ import annotations

import functools
import io
import random
import struct
import zipfile
from collections.abc import Callable

import numpy as np

from benchmarks.weather.hostile_text import cut_off, flipped
from benchmarks.weather.rows import (
    NAMES,
    POLICIES,
    Reading,
    Row,
    draw,
    judge,
    npz_bytes,
    parquet_bytes,
    read_still,
)
from benchmarks.weather.verdict import Came, Kind, Place, Verdict

BYTES: dict[str, Callable[[list[Row]], bytes]] = {".npz": npz_bytes, ".parquet": parquet_bytes}


def attack_bytes(
    suffix: str, spoil: Callable[[random.Random, bytes], bytes], place: Place
) -> Verdict:
    """A spoilt file is refused, or gives what its own library makes of it."""
    rows = draw(place.luck, place.luck.randint(1, 400))
    content = spoil(place.luck, BYTES[suffix](rows))
    path = place.folder / f"rows{suffix}"
    path.write_bytes(content)
    found = read_still(path, place.luck.choice(POLICIES))
    return _compare(found, _as_the_library_reads(suffix, content))


def _as_the_library_reads(suffix: str, content: bytes) -> list[Row] | None:
    """The rows as NumPy or pyarrow have them; None if they refuse the file."""
    try:
        if suffix == ".npz":
            with np.load(io.BytesIO(content)) as archive:
                columns = [archive[name] for name in archive.files]
        else:
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(io.BytesIO(content))
            columns = [column.to_numpy() for column in table.columns]
        return [tuple(map(float, row)) for row in zip(*columns)]
    except Exception:  # each of these libraries has errors of many types
        return None


def _compare(found: Reading, expected: list[Row] | None) -> Verdict:
    if expected is None:
        if found.told or found.bad:
            return Verdict(Came.NOTICE, (found.told or [f"{found.bad} bad rows"])[0])
        return Verdict(Came.DIFFERENT, "rows of a file that its own library refuses")
    return judge(found, [row for row in expected if np.isfinite(row).all()])


def claims_terabytes(place: Place) -> Verdict:
    """An array whose header says 2 TB, in an archive of a few hundred bytes."""
    shape = place.luck.choice([(250_000_000_000,), (500_000, 500_000), (1, 2**38), (2**62,)])
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    text = f"{header!r}".ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + b"\0" * 80
    return _archive(place, content)


def bomb(place: Place) -> Verdict:
    """A gigabyte of zeros, which the archive holds in a megabyte."""
    file = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (1 << 27,)}
    np.lib.format.write_array_header_1_0(file, header)
    return _archive(place, file.getvalue() + b"\0" * (1 << 30))


def _archive(place: Place, content: bytes) -> Verdict:
    path = place.folder / "rows.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in NAMES:
            archive.writestr(f"{name}.npy", content)
    del content
    found = read_still(path, place.luck.choice(POLICIES))
    if found.told or found.bad:
        return Verdict(Came.NOTICE, (found.told or [f"{found.bad} bad rows"])[0])
    return Verdict(Came.DIFFERENT, f"{len(found.rows)} rows were read")


def odd_arrays(place: Place) -> Verdict:
    """Arrays that are no columns: objects, scalars, other lengths, dates, text."""
    odd = [
        np.array(1.5),
        np.arange(3.0),
        np.array(["x"] * 50),
        np.arange(50).astype("datetime64[s]"),
        np.arange(50).astype("timedelta64[s]"),
        np.arange(50) + 1j,
        np.array([None] * 50, dtype=object),
        np.zeros((50, 0)),
        np.zeros((0, 3)),
    ]
    path = place.folder / "rows.npz"
    arrays = [place.luck.choice(odd), place.luck.choice(odd)]
    np.savez(path, a=arrays[0], y=arrays[1], allow_pickle=True)
    found = read_still(path, place.luck.choice(POLICIES))
    # Arrays that are no numbers are left out, as columns of text are.
    numbers = {array.shape[:1] for array in arrays if array.dtype.kind == "f"}
    right = numbers == {(len(found.rows),)}
    return Verdict(Came.RIGHT if right else Came.DIFFERENT, f"{len(found.rows)} rows were read")


def other_name(place: Place) -> Verdict:
    """One kind of file under the name of another."""
    kinds = list(BYTES)
    place.luck.shuffle(kinds)
    path = place.folder / f"rows{place.luck.choice([kinds[1], '.csv', '.jsonl'])}"
    path.write_bytes(BYTES[kinds[0]](draw(place.luck, 50)))
    found = read_still(path, place.luck.choice(POLICIES))
    return Verdict(Came.DIFFERENT, f"{len(found.rows)} rows were read")


KINDS = (
    Kind("NPZ", "cut off at a random byte", functools.partial(attack_bytes, ".npz", cut_off), 100),
    Kind("NPZ", "random bytes flipped", functools.partial(attack_bytes, ".npz", flipped), 200),
    Kind("NPZ", "claims 2 TB", claims_terabytes, 8),
    Kind("NPZ", "a gigabyte of zeros in a megabyte", bomb, 1, mebibytes=3500),
    Kind("NPZ", "arrays that are no columns", odd_arrays, 60),
    Kind(
        "Parquet",
        "cut off at a random byte",
        functools.partial(attack_bytes, ".parquet", cut_off),
        100,
    ),
    Kind(
        "Parquet", "random bytes flipped", functools.partial(attack_bytes, ".parquet", flipped), 200
    ),
    Kind("Parquet", "under the name of another kind, or another under its", other_name, 20),
)
