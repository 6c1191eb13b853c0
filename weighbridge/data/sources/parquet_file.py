"""Read Parquet files by row groups, in batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weighbridge.core.errors import DataError
from weighbridge.core.optional import require
from weighbridge.data.columns import is_numeric_arrow
from weighbridge.data.sources.reading import Block, Position, Reader, file_changed, make_head
from weighbridge.data.sources.requested_columns import Request, check_present, select
from weighbridge.data.values import as_values, refuse_duplicates

BATCH_ROWS = 1 << 16


def read_parquet(path: Path, request: Request, position: Position | None = None) -> Reader:
    """Read a file in batches; a lenient request has no effect, since no single row can be bad."""
    columns, schema, _ = request
    pyarrow, parquet = require("pyarrow"), require("pyarrow.parquet")
    try:
        # With pre_buffer, pyarrow reads ahead without limit, whatever the batch size.
        file = parquet.ParquetFile(
            path, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
        )
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _damaged(error) from error
    with file:
        fields = file.schema_arrow
        refuse_duplicates(fields.names)
        check_present(fields.names, request.named)
        numeric = {field.name for field in fields if is_numeric_arrow(field.type)}
        kept = columns or [name for name in fields.names if name in numeric or name in schema]
        for name in kept:
            if name not in numeric:
                raise DataError(
                    f"Column {name!r} holds values of type {fields.field(name).type}, not "
                    "numbers. Convert it to numbers, or leave the column out."
                )
        claimed = file.metadata.num_rows
        yield make_head(kept, fields.names, claimed)
        chosen = request._replace(columns=kept)
        wanted = position["row"] if position else 0
        if wanted > claimed:
            raise file_changed(f"{claimed} rows", f"row {wanted}")
        row = 0
        # By row groups, so that groups before the position are skipped without reading.
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row + rows <= wanted:
                row += rows
                continue
            for batch in _batches(file, group, kept):
                if row >= wanted:
                    yield Block({"row": row}, select(as_values(batch, row), chosen, row))
                row += batch.num_rows
        if row != claimed:
            raise DataError(
                f"The file claims to have {claimed} rows, but {row} were read: it is damaged. "
                "Write it again."
            )


def _batches(file: Any, group: int, columns: list[str]) -> Iterator[Any]:
    """Batches of a row group; errors in its bytes become a DataError."""
    pyarrow = require("pyarrow")
    try:
        yield from file.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns)
    except (pyarrow.ArrowException, OSError, MemoryError) as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> DataError:
    reason = " ".join(str(error).split())[:200]
    return DataError(f"The file is not Parquet, or is damaged ({reason}). Write it again.")
