"""The contents that saved results and posteriors must have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from weighbridge.core.saved_content import (
    Numbers,
    anything,
    check_arrays,
    items,
    maybe,
    one_of,
    real,
    record,
    text,
    tuple_of,
    whole,
)
from weighbridge.core.status import Status

Arrays = Mapping[str, np.ndarray]

# Entries of every file: the versions that wrote it, and the precision.
ABOUT = {"library": record({}, others=text), "precision": text}
SECONDS = real(0)
# A log density; -inf for a density of zero.
LOG = real(least=-math.inf)
# NaN for draws that were reweighted without an evidence, only.
LOG_EVIDENCE = real(least=-math.inf, nan=True)
REWEIGHTING = "reweighting"
ERROR = real(least=0, most=math.inf, nan=True)
FLAGS = items(one_of(*Status.__members__), different=True)
FINGERPRINT = record(
    {
        "num_rows": whole(),
        "columns": items(tuple_of(text, items(whole()), text, maybe(text))),
        "pairs": items(tuple_of(text, text, text)),
    }
)
# Diagnostics that are used after loading; the others are only shown.
DIAGNOSTICS = {
    "rows_skipped": whole(),
    "rows_quarantined": whole(),
    "columns_left_out": items(text),
    "files_left_out": items(text),
    "largest_value": text,
    "power_reached": real(0, 1),
    "num_rounds": whole(1),
    "num_chains": whole(1),
    "answer": text,
    "scale_remark": text,
    "chosen": text,
    "draws_remark": text,
    "host_remark": text,
    "notes": items(text),
    "untrusted_std_error": real(0, math.inf, nan=True),
    "path_log_evidence": real(-math.inf, math.inf, nan=True),
    "path_error": real(0, math.inf, nan=True),
}
EVIDENCE = record(
    {
        "log_evidence": LOG_EVIDENCE,
        "std_error": ERROR,
        "num_observations": whole(),
        "method": text,
        "elapsed": SECONDS,
        "flags": FLAGS,
        "diagnostics": record({}, DIAGNOSTICS, others=anything),
        "order": items(text, different=True),
    },
    # Older files have no fingerprint.
    {**ABOUT, "fingerprint": maybe(FINGERPRINT)},
)
EVIDENCE_ARRAYS = {
    "trace/[^_].*": Numbers("fiu", ("points",), -math.inf, math.inf, nan=True),
    "samples/.*": Numbers("fiub", ("draws", ...), -math.inf, math.inf),
    "log_weights": Numbers("f", ("weights",), least=-math.inf),
    "diagnostics/.*": Numbers("fiub", None, -math.inf, math.inf, nan=True),
}

# The state of the chains; missing for a posterior that was made in another way.
STANDING = {
    "num_done": items(whole()),
    "seed": whole(most=2**63 - 1),
    "thin": whole(1),
    "warmup": tuple_of(text, maybe(real(0, 1))),
    "kernel": text,
    "digest": maybe(text),
    "fingerprint": text,
}
POSTERIOR = record(
    {
        "names": items(text, different=True),
        "stats": items(text, different=True),
        "num_warmup": whole(),
        "seconds": tuple_of(SECONDS, SECONDS),
        "remarks": items(text),
        "max_depth": maybe(whole()),
        "leaves": items(whole()),
        "plain": record({}, {**STANDING, "schema": text}),
    },
    {**ABOUT, "columns_left_out": items(text)},  # missing in older files
)
# Statistics that diagnostics read: one number per draw.
EACH_DRAW = ("acceptance", "energy", "step_size", "tree_depth", "num_leapfrog")
POSTERIOR_ARRAYS = {
    "positions": Numbers("f", ("chains", "draws", "coordinates")),
    "samples/.*": Numbers("fiub", ("chains", "draws", ...), -math.inf, math.inf),
    "stats/divergent": Numbers("b", ("chains", "draws")),
    f"stats/({'|'.join(EACH_DRAW)})": Numbers(
        "fiu", ("chains", "draws"), -math.inf, math.inf, nan=True
    ),
    "stats/step_energies": Numbers("f", ("chains", "draws", 3), -math.inf, math.inf, nan=True),
    "stats/.*": Numbers("fiub", ("chains", "draws", ...), -math.inf, math.inf, nan=True),
    r"chain/\d+/\d+": Numbers("fiub", None, -math.inf, math.inf, nan=True),
}


def check_evidence(arrays: Arrays, metadata: Mapping[str, Any]) -> None:
    """Refuse contents that are not a result of an estimator."""
    EVIDENCE(metadata, "metadata")
    if math.isnan(metadata["log_evidence"]) and metadata["method"] != REWEIGHTING:
        raise ValueError("the log evidence is not a number")
    if set(metadata["order"]) != set(arrays):
        raise ValueError("the arrays differ from the listed ones")
    if "log_weights" not in arrays:
        raise ValueError("there are no log_weights")
    sizes = check_arrays(arrays, EVIDENCE_ARRAYS)
    if sizes.get("draws", sizes["weights"]) != sizes["weights"]:
        raise ValueError(f"{sizes['draws']} draws have {sizes['weights']} weights")
    weights = arrays["log_weights"]
    if len(weights) and not np.isfinite(weights).any():
        raise ValueError("no draw has a weight")


def check_posterior(arrays: Arrays, metadata: Mapping[str, Any]) -> None:
    """Refuse contents that are not draws of chains."""
    POSTERIOR(metadata, "metadata")
    wanted = {"positions"}
    wanted |= {f"samples/{name}" for name in metadata["names"]}
    wanted |= {f"stats/{name}" for name in metadata["stats"]}
    leaves, plain = metadata["leaves"], metadata["plain"]
    if sum(leaves) > len(arrays):
        raise ValueError(f"the chains need {leaves} arrays, but there are fewer")
    wanted |= {f"chain/{k}/{leaf}" for k, count in enumerate(leaves) for leaf in range(count)}
    if wanted != set(arrays):
        raise ValueError(f"the arrays {sorted(wanted ^ set(arrays))[:5]} are missing or too many")
    sizes = check_arrays(arrays, POSTERIOR_ARRAYS)
    # Files of version 0.1 have no schema: their draws can be read, but their chains cannot
    # continue.
    if plain and set(plain) - {"schema"} != set(STANDING):
        raise ValueError(f"the state of the chains has the entries {sorted(plain)}")
    if bool(plain) != bool(leaves) or len(plain.get("num_done", ())) != len(leaves):
        raise ValueError(f"{len(leaves)} chains are saved, but {plain.get('num_done')} steps")
    if leaves and sizes["chains"] % len(leaves):  # every walker of an ensemble is a chain
        raise ValueError(f"{len(leaves)} chains have draws of {sizes['chains']} chains")
    least = metadata["num_warmup"] + sizes["draws"] * plain.get("thin", 1)
    if any(done < least for done in plain.get("num_done", ())):
        raise ValueError(f"chains of {plain['num_done']} steps, but {least} belong to the draws")
