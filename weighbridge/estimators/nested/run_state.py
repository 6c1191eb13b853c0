"""A run of nested sampling as arrays and plain values, for a checkpoint."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from weighbridge.core.saved_content import Numbers, check_arrays, one_of, real, record, whole
from weighbridge.estimators.nested.points import Points, joined
from weighbridge.estimators.nested.replacement import Counts
from weighbridge.estimators.nested.run import ADDED, STAGES, THIN, NestedRun, Save
from weighbridge.estimators.nested.running_sum import RunningSum
from weighbridge.estimators.nested.tuning import Tuning
from weighbridge.estimators.protocols import Checkpoint
from weighbridge.models.exchangeable import Reference, features

Arrays = dict[str, np.ndarray]
Plain = dict[str, Any]

# Groups of points: the dead ones as a list, the others islands x points.
DEAD, LIVE, RESTING = "dead", "live", "resting"
LISTS = ("num_moves", "remembered")
# The labelling of exchangeable components, once there is one.
LABELLING = {"middle": "labelling/middle", "spread": "labelling/spread"}
# The longest walk that a file may ask for.
MOST_MOVES = 10_000_000
ANY = real(-math.inf, math.inf)

_KINDS = {
    "position": Numbers("f", ("points", "coordinates")),
    "log_prior": Numbers("f", ("points",), -math.inf),
    "log_likelihood": Numbers("f", ("points",), -math.inf),
    "tie": Numbers("f", ("points",), 0, 1),
    "birth": Numbers("f", ("points",), -math.inf),
    "birth_tie": Numbers("f", ("points",), -1, 1),
    "insertion": Numbers("i", ("points",), least=-1),
    "among": Numbers("i", ("points",), least=0),
    "island": Numbers("i", ("points",), least=0),
}
ARRAYS = {
    "num_moves": Numbers("i", ("walks",), least=1, most=MOST_MOVES),
    "remembered": Numbers("f", ("walks",), -1, 1),
}
_LABELLED = {
    "labelling/middle": Numbers("f", ("components", "features")),
    "labelling/spread": Numbers("f", ("components", "features"), 1e-300),
}
SUMS = record({"log_volume": real(most=0), "log_dead": real(-math.inf)})
RUN = record(
    {
        "stage": one_of(*STAGES),
        "sums": SUMS,
        "at_stop": SUMS,
        "log_evidence_at_stop": real(-math.inf),
        "num_thin": whole(),
        "num_blocks": whole(),
        "num_planned": whole(),
        "until": real(-math.inf, math.inf),
        "thin_gain": ANY,
        "left": ANY,
        "elapsed": real(0),
        "num_calls": whole(),
        "counts": record(
            {f.name: whole() for f in dataclasses.fields(Counts) if f.name not in LISTS}
        ),
        "tuning": record(
            {
                "length": real(1, MOST_MOVES),
                "step_size": real(1e-9, 1e9),
                "remembered": real(-1, 1),
                "floor": real(1, MOST_MOVES),
                "jumped": real(0, 1),
                "found": real(0, 1),
                "reach": real(1e-3, 1e3),
            }
        ),
    }
)


def run_state(run: NestedRun) -> tuple[Arrays, Plain]:
    """Arrays and plain values from which ``restore_run`` continues."""
    groups = {DEAD: joined(run.dead), LIVE: run.live, RESTING: run.resting}
    arrays = {
        f"{group}/{name}": leaf
        for group, points in groups.items()
        if points is not None
        for name, leaf in points._asdict().items()
    }
    counts = dataclasses.asdict(run.counts)
    arrays["num_moves"] = np.array(counts.pop("num_moves"), np.int64)
    arrays["remembered"] = np.array(counts.pop("remembered"), np.float64)
    labelling = run.replacement.labelling
    if labelling is not None and labelling.reference is not None:
        arrays |= {LABELLING[n]: leaf for n, leaf in labelling.reference._asdict().items()}
    plain = {name: getattr(run, name) for name in _FIELDS}
    plain |= {
        "sums": run.sums._asdict(),
        "at_stop": run.at_stop._asdict(),
        "num_calls": run.density.num_calls,
        "counts": counts,
        "tuning": run.replacement.tuning._asdict(),
    }
    return arrays, plain


# Plain values that are fields of a run by the same name.
_FIELDS = (
    *("stage", "log_evidence_at_stop", "num_thin", "num_blocks", "num_planned", "until"),
    *("thin_gain", "left", "elapsed"),
)


def restore_run(run: NestedRun, arrays: Arrays, plain: Plain) -> None:
    """Continue from the result of ``run_state``; a ValueError says what cannot be of this run.

    Args:
        run: a run with the same settings that has no points yet.
        arrays: saved arrays.
        plain: saved values.
    """
    RUN(plain, "run")
    rests = plain["stage"] in (THIN, ADDED)
    groups = (DEAD, LIVE, RESTING) if rests else (DEAD, LIVE)
    wanted = {*LISTS, *(f"{group}/{name}" for group in groups for name in Points._fields)}
    labelling = run.replacement.labelling
    labelled = {*LABELLING.values()} & set(arrays) if labelling is not None else set()
    if labelled:
        wanted |= {*LABELLING.values()}
    if wanted != set(arrays):
        raise ValueError(f"the arrays {sorted(wanted ^ set(arrays))[:5]} are missing or too many")
    check_arrays({name: arrays[name] for name in LISTS}, ARRAYS)
    dead, live, *resting = (_points(arrays, group, run) for group in groups)
    if labelling is not None:
        labelling.reference = _reference(arrays, run, live) if labelled else None
    # Points that are added do not count as live points of the run.
    counted = resting if plain["stage"] == ADDED else [live, *resting]
    if not 1 <= sum(points.tie.shape[1] for points in counted) <= run.num_live:
        raise ValueError(f"an island has {run.num_live} live points at most")
    run.dead, run.live, run.resting = [dead], live, resting[0] if resting else None
    for name in _FIELDS:
        setattr(run, name, plain[name])
    run.sums, run.at_stop = RunningSum(**plain["sums"]), RunningSum(**plain["at_stop"])
    lists = {name: arrays[name].tolist() for name in LISTS}
    run.replacement.counts = Counts(**plain["counts"], **lists)
    run.replacement.tuning = Tuning(**plain["tuning"])
    run.density.num_calls = plain["num_calls"]


def _reference(arrays: Arrays, run: NestedRun, live: Points) -> Reference:
    """The labelling of exchangeable components."""
    _, components, size = features(run.density.model, live.position[:, 0]).shape
    saved = {name: arrays[name] for name in LABELLING.values()}
    check_arrays(saved, _LABELLED, {"components": components, "features": size})
    return Reference(**{name: saved[place] for name, place in LABELLING.items()})


def _points(arrays: Arrays, group: str, run: NestedRun) -> Points:
    """The points of a group, or a ValueError that names what no run can have."""
    points = Points(*(arrays[f"{group}/{name}"] for name in Points._fields))
    axes = points.tie.shape
    if len(axes) != (1 if group == DEAD else 2) or 0 in axes:
        raise ValueError(f"the points {group!r} have the shape {axes}")
    if any(leaf.shape[: len(axes)] != axes for leaf in points):
        raise ValueError(f"the arrays of the points {group!r} have different lengths")
    flat = points if group == DEAD else points.flat()
    check_arrays(flat._asdict(), _KINDS, {"coordinates": run.density.model.dimension})
    above = (flat.birth < flat.log_likelihood) | (
        (flat.birth == flat.log_likelihood) & (flat.birth_tie < flat.tie)
    )
    if not above.all():
        raise ValueError(f"a point of {group!r} is below the contour at which it was born")
    of_run = np.isin(flat.island, run.islands)
    if group != DEAD:
        of_run &= np.array_equal(points.island, np.tile(run.islands[:, None], axes[1]))
    if not of_run.all():
        raise ValueError(f"a point of {group!r} belongs to no island of this run")
    return points


def saver(run: NestedRun, checkpoint: Checkpoint, first_island: int) -> Save:
    """The function that a run calls after each batch, and at its end."""

    def save(ends: bool) -> None:
        if ends or checkpoint.is_due():
            checkpoint.keep(first_island, *run_state(run))

    return save
