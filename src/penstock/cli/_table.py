"""Rows as an aligned table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["table"]


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return *rows* below *headings*; numbers to the right, texts to the left."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *texts, strict=True)]
    is_number = [all(isinstance(row[i], int | float) for row in rows) for i in range(len(headings))]
    lines = [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in [list(headings), ["-" * width for width in widths], *texts]
    ]
    return "\n".join(lines)


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.2f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
