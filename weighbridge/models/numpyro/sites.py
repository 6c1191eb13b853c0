"""The sites of a NumPyro model function; features that cannot be used are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpyro import handlers
from numpyro.primitives import Messenger

from weighbridge.core.errors import ModelError, WeighbridgeError
from weighbridge.core.types import Array
from weighbridge.data.values import num_rows


class _Inspector(Messenger):
    """Outermost handler: sees each site as inference would, and refuses unusable ones."""

    def __init__(self) -> None:
        self.latent: dict[str, Array] = {}
        self.observed: list[str] = []
        super().__init__()

    def process_message(self, msg: Any) -> None:
        kind, name = msg["type"], msg.get("name")
        if kind in ("param", "mutable"):
            raise ModelError(
                f"The site {name!r} is a numpyro.{kind}: it has no prior, so the evidence is "
                "undefined. Give it a prior with numpyro.sample, or pass it with static={...}."
            )
        if kind == "plate" and msg["args"][1] not in (None, msg["args"][0]):
            raise ModelError(
                f"The plate {name!r} is subsampled ({msg['args'][1]} of {msg['args'][0]} rows). "
                "Leave subsample_size out: weighbridge takes mini-batches itself."
            )
        if kind == "sample":
            _refuse_site(name, msg)

    def postprocess_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and msg["is_observed"]:
            self.observed.append(msg["name"])
        elif msg["type"] == "sample":
            self.latent[msg["name"]] = msg["value"]


def _refuse_site(name: str, site: Any) -> None:
    kinds = {type(inner).__name__ for inner in _layers(site["fn"])}
    if "Unit" in kinds:
        raise ModelError(
            f"The site {name!r} is a numpyro.factor: it could be part of the prior or of the "
            "likelihood, and may not be normalised. Write it as numpyro.sample(..., obs=...), or "
            "write the model as wb.Model(prior, log_likelihood)."
        )
    if site["scale"] is not None and not np.all(np.asarray(site["scale"]) == 1):
        raise ModelError(
            f"The site {name!r} has its log density scaled (handlers.scale), which changes the "
            "evidence. Remove the handler; rows that repeat are given by a column 'weight' of "
            "the data."
        )
    if "MaskedDistribution" in kinds:
        raise ModelError(
            f"The site {name!r} is masked (handlers.mask, .mask() or obs_mask). Remove the mask: "
            "leave the masked rows out of the data, or write jnp.where in the log-likelihood of "
            "wb.Model(prior, log_likelihood)."
        )
    if site["is_observed"]:
        return
    if "ImproperUniform" in kinds:
        raise ModelError(
            f"The prior of {name!r} is improper (ImproperUniform): the evidence is undefined. Use "
            "a proper prior, such as a wide Normal or a bounded Uniform."
        )
    if site["fn"].is_discrete:
        raise ModelError(
            f"The latent site {name!r} is discrete ({_base_name(site['fn'])}). If it is an "
            "observation, give its values in data; if not, sum it out of the likelihood, for "
            "example with dist.MixtureSameFamily."
        )
    if site.get("_control_flow_done"):
        raise ModelError(
            f"The latent site {name!r} is drawn inside scan or cond, where its prior depends on "
            "itself. Draw it outside, as one array with its joint distribution (for example "
            "dist.GaussianRandomWalk)."
        )


def _layers(distribution: Any) -> Iterator[Any]:
    while distribution is not None:
        yield distribution
        distribution = getattr(distribution, "base_dist", None)


def _base_name(distribution: Any) -> str:
    return type(list(_layers(distribution))[-1]).__name__


def inspect_sites(
    run: Callable[..., None], rows: Mapping[str, Any], one_row: Mapping[str, Any]
) -> dict[str, Array]:
    """A prior draw of each latent site; runs on all example rows and on one, to compare.

    Args:
        run: calls the function on a batch of rows, inside the given handlers.
        rows: all example rows.
        one_row: a batch with a single row.
    """
    full = _inspected(run, rows, "all of the example rows")
    single = _inspected(run, one_row, "one of the example rows")
    for name in [*full.latent, *single.latent]:
        shapes = [np.shape(i.latent[name]) for i in (full, single) if name in i.latent]
        if len(shapes) < 2 or shapes[0] != shapes[1]:
            raise ModelError(
                f"The latent site {name!r} has entries for each row of the data (it is inside the "
                "data plate), so that rows cannot be weighed one by one. If it is an observation, "
                "give its values in data. If not, give from_numpyro(..., total=True), by which all "
                "the data are weighed at once; or integrate it out of the likelihood, or index a "
                "fixed number of groups."
            )
    _require_sites(full.latent, single.observed)
    if full.observed != single.observed:
        raise ModelError(
            f"The NumPyro model has other observed sites for {num_rows(rows)} rows "
            f"({full.observed[:3]}, ...) than for one ({single.observed}). Write one site for all "
            "rows, inside a plate."
        )
    return single.latent


def inspect_all(run: Callable[..., None], data: Mapping[str, Any]) -> dict[str, Array]:
    """A prior draw of each latent site, for a function that uses all the data at once."""
    found = _inspected(run, data, "the data")
    _require_sites(found.latent, found.observed)
    return found.latent


def _inspected(run: Callable[..., None], batch: Mapping[str, Any], name: str) -> _Inspector:
    inspector = _Inspector()
    try:
        run(batch, inspector, handlers.seed(rng_seed=0))
    except WeighbridgeError:
        raise
    except Exception as error:
        raise ModelError(
            f"The NumPyro model fails on {name}: {first_line_of(error)} Check the names and shapes "
            "of data and static; the size of a plate over the rows must come from the shape of an "
            "argument."
        ) from error
    return inspector


def _require_sites(latent: Mapping[str, Any], observed: Sequence[str]) -> None:
    if not latent:
        raise ModelError("The NumPyro model has no latent site: there is nothing to integrate.")
    if not observed:
        raise ModelError(
            "The NumPyro model has no observed site. Give the values of its outputs in data, and "
            "pass them on with obs=."
        )


def first_line_of(error: Exception) -> str:
    """What an error says, as one sentence."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}."
