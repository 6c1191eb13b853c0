"""The check of rows: the log-likelihood reads its row, and the rows add up to the total."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from weighbridge.checking.model_check.agreement import EXACT, relative_error
from weighbridge.checking.model_check.likelihood import Case
from weighbridge.checking.model_check.report import Check
from weighbridge.core.compilation import jit
from weighbridge.core.types import PyTree
from weighbridge.models.model import Model
from weighbridge.models.targets.rows import Rows

# Number of rows that are evaluated one by one.
NUM_SINGLE = 16


def check_rows(case: Case, samples: dict[str, np.ndarray]) -> Check:
    """Does the log-likelihood read its row, and do single rows add up to the total?"""
    model, (values, weight) = case.model, case.some_rows(NUM_SINGLE)
    row = jax.tree_util.tree_map(lambda leaf: leaf[0], values)
    if not _reads_row(model, row):
        return Check(
            "rows",
            False,
            "the log-likelihood does not read its row",
            "log_likelihood(parameters, row) is the log-likelihood of ONE row, and must use it. "
            "Data from outside the row would be counted once for every row. For a function of all "
            "the data use total_log_likelihood.",
        )
    whole, singly = np.asarray(_sums(model, samples, Rows(values, weight))), []
    for index in range(len(whole)):
        one = {name: draws[index] for name, draws in samples.items()}
        rows = [jax.tree_util.tree_map(lambda leaf: leaf[k], values) for k in range(len(weight))]  # noqa: B023
        singly.append(sum(w * float(_one_row(model, one, row)) for w, row in zip(weight, rows)))
    error = float(np.max(relative_error(whole, np.array(singly)), initial=0.0))
    return Check(
        "rows",
        error <= EXACT,
        f"{len(weight)} rows add up to {error:.1g}"
        if error <= EXACT
        else f"rows one by one and all at once differ by {error:.2g} of the sum",
        "The log-likelihood of one row must not depend on the others: look for batching rules of "
        "your own (custom_vmap, callbacks) that mix rows.",
    )


def _reads_row(model: Model, row: PyTree) -> bool:
    """Whether the result depends on the row: then JAX refuses ``out_axes=None``."""
    batch = jax.tree_util.tree_map(lambda leaf: np.stack([leaf, leaf]), row)
    function = model.require_rows()
    fixed = jax.vmap(lambda u, r: function(model.transform(u)[0], r), (None, 0), out_axes=None)
    try:
        jax.eval_shape(fixed, np.zeros(model.dimension), batch)
    except ValueError:
        return True
    return False


_sums = jit(lambda model, samples, rows: jax.vmap(lambda p: rows(model, jnp.zeros(()), p))(samples))
_one_row = jit(lambda model, parameters, row: model.require_rows()(parameters, row))
