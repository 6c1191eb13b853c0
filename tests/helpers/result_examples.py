"""One example of every result class: a new class gets a new row here."""

import dataclasses
import math

import numpy as np

import weighbridge as wb

STATUS = wb.Status.LOW_ESS
DRAWS = np.random.default_rng(0).normal(size=(2, 30))


def evidence():
    return wb.Evidence(
        -10.0,
        0.1,
        2,
        "smc",
        wb.Trace(power=np.array([0.5, 1.0]), log_evidence=np.array([-4.0, -10.0])),
        {"mu": DRAWS[0]},
        np.full(30, -math.log(30)),
        {"island_log_evidence": np.array([-10.0, -10.1]), "answer": "path"},
        (STATUS,),
        1.5,
        wb.Fingerprint().add({"x": DRAWS[:, :3], "y": DRAWS[:, 0]}, np.ones(2)),
    )


def nested():
    points = {"logL": np.arange(30.0), "log_volume": -np.arange(30.0), "nlive": np.ones(30)}
    fields = {f.name: getattr(evidence(), f.name) for f in dataclasses.fields(wb.Evidence)}
    fields["trace"] = wb.Trace(log_evidence=np.arange(30.0), **points)
    return wb.NestedEvidence(**fields)


def reweighted():
    fields = {f.name: getattr(evidence(), f.name) for f in dataclasses.fields(wb.Evidence)}
    told = {"log_ratio": -1.5, "ratio_error": 0.05, "pareto_k": 0.3, "ess": 25.0}
    return wb.Reweighted(**fields | {"diagnostics": told})


def comparison():
    other = dataclasses.replace(evidence(), log_evidence=-12.0)
    return wb.compare({"a": evidence(), "b": other})


def history():
    found = wb.History()
    found.add({"rows": 10}, {"a": {"log_evidence": -1.5, "probability": 1.0}})
    return found


def posterior(kernel=None):
    kernel = wb.NUTS(0.3, np.array([1.0, 2.0])) if kernel is None else kernel
    return wb.Posterior(
        {"mu": DRAWS},
        DRAWS[..., None],
        {"divergent": np.zeros((2, 30), bool)},
        kernel,
        100,
        (1.0, 2.0),
        ("A remark.",),
        10,
        {"chains": [[np.arange(3.0)]], "seed": 4},
        lambda num_samples: num_samples,
    )


CHANGE = wb.Change(100, 1e-6, -2.0, "parameters", 90, 120, 3.0, "a")
ELPD = wb.Elpd(-9.0, 1.0, 1.2, "loo", DRAWS[0], np.ones(30), DRAWS[1], ("Look.",))
NUMBERS = {"a": -1.0, "b": -2.5}
EXAMPLES = {
    "Bounds": wb.Bounds(
        *(-3.0, -2.0, 0.1, 0.2), {"y": DRAWS[0]}, {"mu": np.array(1.0)}, np.linspace(0, 1, 3),
        DRAWS, -DRAWS, "ais", 30, (STATUS,), 0.5,
    ),
    "Calibration": wb.Calibration({"mu": np.arange(20) % 10}, 9, 0.1),
    "CatchUp": wb.CatchUp("reservoir", 100, 0.5),
    "Change": CHANGE,
    "Changes": wb.Changes(policy="restart"),
    "Check": wb.Check("rows", False, "no", "Sum."),
    "Comparison": comparison(),
    "ComparisonUpdate": wb.ComparisonUpdate(
        *(9, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, 0, 1, {"a": (STATUS,)}, 0.5),
        (wb.Notice("gap", 3, "Rows are missing."),),
        (CHANGE,),
    ),
    "CrossCheck": wb.CrossCheck({"smc": evidence(), "nested": nested()}, {"bridge": "No memory."}),
    "Elpd": ELPD,
    "ElpdComparison": wb.compare_loo({"a": ELPD, "b": ELPD}),
    "Evidence": evidence(),
    "EvidenceRatio": wb.EvidenceRatio(
        ("full model", "beta = 0"), np.array([0.0, 1.5]), 0.01 * (1 - np.eye(2)), "savage_dickey",
        2, (), {"rhat": 1.0}, (STATUS,), ("A remark.",), 1.5, evidence().fingerprint,
    ),
    "Findings": wb.Findings(["Chains disagree.", "Few draws."]),
    "Fingerprint": evidence().fingerprint,
    "History": history(),
    "Integral": wb.Integral(1.0, 0.1, 100, 99.0, 0.2),
    "ModelReport": wb.ModelReport((wb.Check("rows", None, "unknown"),)),
    "NestedEvidence": nested(),
    "Notice": wb.Notice("gap", 3, "Rows are missing."),
    "ExactPosterior": wb.ExactPosterior({"mu": np.array(0.5)}, np.eye(1), "s2", 3.0, 1.0),
    "Information": wb.Information(np.eye(2), {"w": np.array([0.5, 1.0])}, "observed"),
    "Optimum": wb.Optimum(
        {"mu": np.array([1.0, 2.0])}, -3.0, {"mu": np.array([0.1, 0.2])}, "posterior",
        "constrained", np.array([-3.0]), np.array([[1.0, 2.0]]), ("A note.",),
    ),
    "Parcel": wb.Parcel({"y": DRAWS[0]}, {"offset": 3}, 7, (wb.Notice("gap", 3, "Look."),)),
    "Posterior": posterior(),
    "Prediction": wb.Prediction(DRAWS, 30, {"a": 1.0}),
    "PredictiveCheck": wb.PredictiveCheck({"mean": 0.0}, {"mean": DRAWS[0]}, {"mean": 0.4}),
    "Reweighted": reweighted(),
    "Sensitivity": wb.Sensitivity({"mu": 0.1}, {"mu": 0.2}, -0.5, 0.03, -9.0, 0.1),
    "Summary": wb.diagnostics.summarise({"mu": DRAWS}),
    "Table": wb.Table(("mean", "sd"), {"mu": (0.5, 0.1)}),
    "Trace": evidence().trace,
    "Update": wb.Update(-3.0, 0.1, -1.0, 9, 3.0, 60.0, 1, 2, (STATUS,), 0.3, (CHANGE,)),
    "Verdict": wb.Verdict(True, 0.0, 0.0, "between the bounds"),
    "Warmup": wb.Warmup(),
    "Watched": wb.Watched("end", 9, comparison()),
}  # fmt: skip
