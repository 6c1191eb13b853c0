"""Change detectors on the annotated series of the Turing change point dataset in river.

Precision, recall and F1 are those of van den Burg & Williams (2020), arXiv:2003.06222. A change is
found if a detection lies within five rows of it; each detection counts for one change only. The
first row counts as a change that every detector finds. Precision uses the changes of all annotators
together; recall is the mean over annotators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import special

import weighbridge as wb
from benchmarks import report

MARGIN = 5
# Settings for all series, chosen beforehand.
CHUNK = 10
CHANGES = wb.Changes(false_alarm_rate=1e-3, policy="restart", min_rows=20)
METHOD = wb.SGAIS(num_islands=4, num_particles=16, chunk_size=CHUNK)
# Expected rows between changes, for the Bayesian online detector.
RUN_LENGTH = 100.0

Series = tuple[np.ndarray, dict[str, list[int]]]


def load() -> dict[str, Series]:
    """Standardised series, rows x columns, and the changes that each annotator saw.

    The annotations refer to thinned series, but two series in river are not thinned. They are
    thinned here: every third day of Apple (closing price and volume), and every tenth day of Brent
    from 2000 on.
    """
    from river.drift import datasets

    names = (
        "AirlinePassengers",
        "Apple",
        "Bitcoin",
        "BrentSpotPrice",
        "Occupancy",
        "RunLog",
        "UKCoalEmploy",
    )
    found = {}
    for name in names:
        source = getattr(datasets, name)()
        rows = list(source)
        if name == "Apple":
            rows = [(x, {k: y[k] for k in ("Close", "Volume")}) for x, y in rows][::3][:622]
        if name == "BrentSpotPrice":
            rows = [(x, y) for x, y in rows if x["day"].year >= 2000][::10]
        if name == "Bitcoin":
            rows = rows[:774]
        values = np.array([list(y.values()) if isinstance(y, dict) else [y] for _, y in rows])
        values = (values - values.mean(axis=0)) / values.std(axis=0)
        found[name] = (values, {k: list(v) for k, v in source.annotations.items()})
    return found


# --- detectors: from a standardised series to the rows at which it changes ----------------------


def normal_model(columns: int) -> wb.Model:
    """Independent normal columns of unknown mean and variance."""
    shape = [columns]
    return wb.Model(
        {
            "mean": dist.Normal(0.0, 2.0).expand(shape).to_event(1),
            "scale": dist.HalfNormal(1.0).expand(shape).to_event(1),
        },
        _normal,
    )


def _normal(parameters: Any, row: Any) -> Any:
    scale = parameters["scale"] + 1e-3  # constant stretches have an infinite density otherwise
    squares = ((row - parameters["mean"]) / scale) ** 2
    return jnp.sum(-0.5 * squares - jnp.log(scale) - 0.5 * math.log(2 * math.pi))


def weighbridge(values: np.ndarray) -> list[int]:
    online = wb.Online(normal_model(values.shape[1]), METHOD, changes=CHANGES)
    for start in range(0, len(values), CHUNK):
        online.update(values[start : start + CHUNK])
    return [change.row for change in online.changes]


def of_river(make: Callable[[], Any]) -> Callable[[np.ndarray], list[int]]:
    """A detector of river with its defaults, on every column separately."""

    def detect(values: np.ndarray) -> list[int]:
        found = set()
        for column in values.T:
            detector = make()
            for row, value in enumerate(column):
                detector.update(float(value))
                if detector.drift_detected:
                    found.add(row)
        return sorted(found)

    return detect


def bayesian_online(values: np.ndarray) -> list[int]:
    """Adams & MacKay (2007), arXiv:0710.3742, with normal-inverse-gamma columns.

    Changes are the starts of the most probable runs, over all rows.
    """
    rows, columns = values.shape
    mean = np.zeros((1, columns))
    kappa = alpha = np.ones((1, 1))
    beta = np.ones((1, columns))
    log_run = np.zeros(1)
    found: set[int] = set()
    for row, value in enumerate(values):
        scale2 = beta * (kappa + 1) / (alpha * kappa)
        z2 = (value - mean) ** 2 / scale2
        log_density = (
            special.gammaln(alpha + 0.5)
            - special.gammaln(alpha)
            - 0.5 * np.log(2 * math.pi * alpha * scale2)
            - (alpha + 0.5) * np.log1p(z2 / (2 * alpha))
        ).sum(axis=1)
        grown = log_run + log_density + math.log1p(-1 / RUN_LENGTH)
        new = special.logsumexp(log_run + log_density) - math.log(RUN_LENGTH)
        log_run = np.concatenate([[new], grown])
        log_run -= special.logsumexp(log_run)
        beta = np.vstack(
            [np.ones((1, columns)), beta + kappa * (value - mean) ** 2 / (2 * (kappa + 1))]
        )
        mean = np.vstack([np.zeros((1, columns)), (kappa * mean + value) / (kappa + 1)])
        kappa = np.vstack([[[1.0]], kappa + 1])
        alpha = np.vstack([[[1.0]], alpha + 0.5])
        began = row + 1 - int(np.argmax(log_run))
        if 0 < began < rows:
            found.add(began)
    return sorted(found)


def detectors() -> dict[str, Callable[[np.ndarray], list[int]]]:
    from river import drift

    return {
        "weighbridge": weighbridge,
        "Bayesian online": bayesian_online,
        "ADWIN": of_river(drift.ADWIN),
        "KSWIN": of_river(lambda: drift.KSWIN(seed=0)),
        "PageHinkley": of_river(drift.PageHinkley),
    }


# --- how good they are ---------------------------------------------------------------------------


def hits(true: Sequence[int], found: Sequence[int]) -> int:
    """The number of changes with a detection within the margin; each detection counts once."""
    left, count = sorted(set(found)), 0
    for row in sorted(set(true)):
        near = [guess for guess in left if abs(guess - row) <= MARGIN]
        if near:
            left.remove(min(near, key=lambda guess: abs(guess - row)))
            count += 1
    return count


def judge(annotations: Mapping[str, Sequence[int]], found: Sequence[int]) -> dict[str, float]:
    """Precision, recall and F1 of detections."""
    guesses = {0, *found}
    people = [{0, *rows} for rows in annotations.values()]
    precision = hits(sorted(set().union(*people)), sorted(guesses)) / len(guesses)
    recall = float(np.mean([hits(sorted(rows), sorted(guesses)) / len(rows) for rows in people]))
    f1 = 2 * precision * recall / (precision + recall)
    return {"precision": precision, "recall": recall, "f1": f1, "found": len(found)}


def measure() -> dict[str, Any]:
    return {
        name: {who: judge(people, detect(values)) for who, detect in detectors().items()}
        for name, (values, people) in load().items()
    }


def section(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """The table of all detectors on all series."""
    who = list(next(iter(found.values())))
    rows = [
        [
            name,
            *(
                f"{e['f1']:.2f} ({e['precision']:.2f}, {e['recall']:.2f}; {e['found']:.0f})"
                for e in entry.values()
            ),
        ]
        for name, entry in found.items()
    ]
    means = [
        [
            np.mean([entry[name][key] for entry in found.values()])
            for key in ("f1", "precision", "recall")
        ]
        for name in who
    ]
    rows.append(["mean", *(f"{f1:.2f} ({p:.2f}, {r:.2f})" for f1, p, r in means)])
    return (
        "## Series that people annotated\n\n"
        "F1 (precision, recall; number of detections) on the series of the Turing change point "
        f"dataset that river ships, with a margin of {MARGIN} rows (van den Burg & Williams 2020, "
        "arXiv:2003.06222), all columns standardised. Ours: one configuration for all, chosen "
        f"beforehand: normal columns of unknown mean and variance, chunks of {CHUNK} rows, "
        f"{CHANGES!r}. Bayesian online detection: Adams & MacKay (2007) with normal-inverse-gamma "
        f"columns and one change in {RUN_LENGTH:.0f} rows. River's detectors at their defaults, on "
        "every column. Neighbouring rows of these series resemble each other, which the model "
        "does not know: a false-alarm rate is not to be expected of it here.\n\n"
        + report.table(("series", *who), rows)
    )
