"""weighbridge compares Bayesian models by their evidence, on data of any size, as they arrive.

    import weighbridge as wb
    model = wb.Model(prior={"mu": dist.Normal(0, 1)}, log_likelihood=lambda p, row: ...)
    wb.evidence(model, data)               # the log evidence with its error, and the posterior
    wb.compare({"a": a, "b": b}, data)     # Bayes factors and probabilities of models

help(wb.evidence) describes one name. The names by topic:

Models
    Model, from_numpyro, zoo (ready-made models), adapters (scikit-learn, river), check_model
    coordinates of a prior: in_coordinates, BoxCox, YeoJohnson
The evidence of models
    evidence, compare, average; Evidence, Trace, Comparison, Status, Fingerprint
    methods held against each other: cross_check, CrossCheck
    methods: SGAIS, SMC, IBIS, AIS, Thermodynamic, PriorSampling, PublishedSGAIS, SequentialSGMCMC,
    Bridge, Importance, Laplace, NestedSampling, OnlineNestedSampling; HarmonicMean, as a warning
    results of nested sampling: NestedEvidence, merge
    from posterior draws that exist already: bridge, reweight, Reweighted, from_arviz
    ratios of evidences: savage_dickey, product_space, importance_ratio; EvidenceRatio
    your own method: BatchMethod, SequentialMethod
    how particles move: AdaptiveHMC, AdaptiveWalk, Repeat
    bounds from both sides: bidirectional, Bounds, Verdict
Streams
    Online, OnlineComparison, Update, ComparisonUpdate, History, CatchUp, Changes, Change
    watch, Plan, Keeping, Watched, CheckpointStore
    open_feed, chunks, RedisStream, Parcel, Notice, Continuity, lagged, Lagged
The posterior
    sample, Posterior, Prediction, Warmup, Summary, Table, Findings; ExactPosterior (of the zoo)
    kernels: NUTS, XHMC, HMC, WindowedHMC, MALA, Metropolis, MetropolisHastings, AdaptiveMetropolis,
    Independence, Slice, Stretch, Gibbs, ParallelTempering, SimulatedTempering,
    PopulationMonteCarlo, Rejection
    kernels on mini-batches: SGLD, PSGLD, SGHMC, RiemannianSGHMC, SGNHT, RobbinsMonro
    your own kernel: Kernel
    diagnostics, ess, rhat, mcse
Checking a model
    loo, waic, compare_loo, Elpd, ElpdComparison, predictive_check, PredictiveCheck,
    prior_sensitivity, Sensitivity, sbc, Calibration, ModelReport, Check
Integrals and maxima
    integrate, Integral, maximize, Optimum, score, fisher_information, Information
Errors
    WeighbridgeError, CheckpointError, DataError, ForkError, InUseError, MethodError,
    MissingDependencyError, ModelError, WeighbridgeWarning
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.2.0"


def _public_names() -> dict[str, str]:
    """The module that holds each public name, read from ``__init__.pyi``, the only such list."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {entry.name: node.module or "" for node in imports for entry in node.names}


_HOME_OF = _public_names()
__all__ = [name for name in sorted(_HOME_OF) if not name.startswith("_")]


def __getattr__(name: str) -> Any:
    """Import on first use: ``weighbridge --help`` must not wait for JAX."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOME_OF[name]
    if home == __name__:  # a room that is public itself
        return importlib.import_module(f"{home}.{name}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
