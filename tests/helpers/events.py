"""Events of a watch, as its log holds them."""

import datetime

BEGAN = datetime.datetime(2026, 1, 5, 8, 0, tzinfo=datetime.UTC)


def clock(rows):
    return (BEGAN + datetime.timedelta(seconds=rows)).isoformat()


def start(rows=0, models=("line", "curve"), **more):
    return {
        "event": "start",
        "time": clock(rows),
        "models": list(models),
        "source": "rows.csv",
        "seekable": True,
        "rows": rows,
        "version": "0.1.0",
    } | more


def update(rows, first=-1.5, second=-1.4, names=("line", "curve"), **more):
    of = lambda *values: dict(zip(names, values))  # noqa: E731
    return {
        "event": "update",
        "time": clock(rows),
        "rows": rows,
        "log_evidences": of(first * rows, second * rows),
        "std_errors": of(0.25, 0.5),
        "log_predictives": of(-1.0, -1.0),
        "annealing_steps": of(2.0, 3.0),
        "probabilities": of(0.125, 0.875),
        "probability_errors": of(0.01, 0.01),
        "rows_skipped": 1,
        "rows_quarantined": 2,
        "flags": of([], []),
        "elapsed": 0.5,
    } | more


def change(rows, row, score=9.5, model="line"):
    event = {"event": "change", "time": clock(rows), "rows": rows}
    return event | {"row": row, "score": score, "p_value": 0.0005, "model": model}
