"""The result of an estimator: the log evidence with its error, the path, the posterior."""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge.core import checkpoint_file
from weighbridge.core.checks import check_count
from weighbridge.core.constants import PROBABILITY
from weighbridge.core.errors import MethodError
from weighbridge.core.pickling import PACKAGE, travels
from weighbridge.core.resampling import systematic_indices
from weighbridge.core.status import Status, gravest
from weighbridge.core.tables import summaries
from weighbridge.core.tables.notebook import MOST_ENTRIES, MOST_ROWS, Page, Shown
from weighbridge.core.tables.table import Table
from weighbridge.data.fingerprint import Fingerprint
from weighbridge.data.values import columns_remark
from weighbridge.plots.answer import explain_answer
from weighbridge.plots.paths import plot_paths
from weighbridge.results import arviz_export
from weighbridge.results.posterior_figure import DrawnPosterior, PosteriorFigure
from weighbridge.results.prediction import Function, Prediction, predict
from weighbridge.results.saved_content import check_evidence
from weighbridge.results.trace import Trace
from weighbridge.results.trust import AT_LEAST, claimed_error, stated, trust
from weighbridge.results.wording import (
    caution_of,
    counted,
    digits,
    digits_of_error,
    left_out,
    with_trust,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.models.model import Model
    from weighbridge.plots.surface import Surface

SCHEMA = "weighbridge.evidence.1"
# Methods whose results have a class of their own, by its public name.
OF_METHOD = {"nested": "NestedEvidence"}


@travels()
@dataclass(frozen=True, eq=False, repr=False)
class Evidence(PosteriorFigure, Shown):
    """The log evidence of a model, with its error, path, posterior and diagnostics.

    Attributes:
        log_evidence: log of the marginal likelihood, in nats.
        std_error: its standard error; NaN when it cannot be stated, and with a grave flag. Then
            the error that the method claims is in ``diagnostics["untrusted_std_error"]``.
        num_observations: number of rows, repeated rows counted.
        method: name of the estimator.
        trace: the path, one entry per chunk or temperature; of the first round of islands, if a
            tolerance asked for several.
        samples: posterior draws by parameter name, the draw along the first axis.
        log_weights: their normalised log weights.
        diagnostics: measurements of the estimator about its run. ``notes``, if there are any, are
            sentences that are printed below the flags.
        flags: every reason for caution; empty if there is none. One about the size of the error is
            added where it is 2 nats or more.
        elapsed: seconds of wall-clock time.
        fingerprint: of the rows that were weighed; ``wb.compare`` refuses results whose data
            differ. None where the rows are not known, as in files of older versions.
    """

    log_evidence: float
    std_error: float
    num_observations: int
    method: str
    trace: Trace
    samples: dict[str, np.ndarray]
    log_weights: np.ndarray
    diagnostics: dict[str, Any] = field(default_factory=dict)
    flags: tuple[Status, ...] = ()
    elapsed: float = 0.0
    fingerprint: Fingerprint | None = None

    def __post_init__(self) -> None:
        # The only place where an error is withheld or a large one flagged, so that no method, and
        # no older file, can state one beside a grave flag.
        for name, value in stated(self.std_error, self.flags, self.diagnostics)._asdict().items():
            object.__setattr__(self, name, value)

    @property
    def claimed_error(self) -> float:
        """The error that the method claims, even if a grave flag says not to trust it.

        >>> flags = (Status.ISLANDS_DISAGREE,)
        >>> found = Evidence(-1.0, 0.1, 9, "smc", Trace(), {}, np.zeros(1), flags=flags)
        >>> found.std_error, found.claimed_error
        (nan, 0.1)
        """
        return claimed_error(self.std_error, self.diagnostics)

    @property
    def is_trusted(self) -> bool:
        """Whether no flag is grave: whether number and error may be used as an answer."""
        return not self.trust

    @property
    def is_lower_bound(self) -> bool:
        """Whether the answer is only a lower bound, because of a grave flag.

        A path method overstates the evidence rarely, and misses mass often. An answer with a grave
        flag that is no lower bound may be wrong in both directions.

        >>> flags = (Status.ISLANDS_DISAGREE,)
        >>> print(Evidence(-1.0, 0.1, 0, "smc", Trace(), {}, np.zeros(1), flags=flags)
        ...       ) # doctest: +ELLIPSIS
        log evidence at least -1.00, a lower bound (smc, 0.0 s)
          islands disagree: ...
        """
        return self.trust == AT_LEAST

    @property
    def trust(self) -> str:
        """What a grave flag makes of the answer: "at least", "not to be trusted", or empty."""
        return trust(self.method, self.flags)

    @property
    def status(self) -> Status:
        """The most serious flag: the first grave one, or the first; or ``Status.OK``."""
        return gravest(self.flags)

    @property
    def caution(self) -> str:
        """The reasons for caution in a few words, for headings; empty if there are none.

        >>> flags = (Status.ISLANDS_DISAGREE, Status.LOW_ESS)
        >>> Evidence(-1.0, 0.1, 9, "smc", Trace(), {}, np.zeros(1), flags=flags).caution
        'caution: islands disagree, few effective particles'
        """
        return caution_of(self.flags)

    def __str__(self) -> str:
        value = digits(self.log_evidence, self.claimed_error)
        power = self.diagnostics.get("power_reached", 1.0)
        reached = "" if power >= 1 else f" at power {power:.3g}"
        about = [self.method]
        if self.num_observations:  # unknown for a total log-likelihood
            skipped = left_out(self.rows_skipped, self.rows_quarantined)
            about.append(f"{counted(self.num_observations)}{skipped}")
        about.append(f"{self.elapsed:.1f} s")
        said = with_trust(value, digits_of_error(self.std_error), self.trust)
        text = f"log evidence{reached} {said} ({', '.join(about)})"
        remarks = [*self.flags, *self.remarks]
        return "\n".join([text, *(f"  {remark}" for remark in remarks)])

    def __repr__(self) -> str:
        return f"<Evidence: {str(self).splitlines()[0]}; {self.status.label}>"

    def _page(self) -> Page:
        entries = summaries.first_entries(self.samples, MOST_ROWS)
        heading, flags = str(self).splitlines()[0], [*map(str, self.flags), *self.remarks]
        if not entries:
            return Page(heading, remarks=flags, caution=self.caution)
        table = summaries.summarise(entries, self._weights(), PROBABILITY)
        more = summaries.num_entries(self.samples) - len(entries)
        below = [f"{more:,} more entries of the parameters: see summary()"] if more else []
        return Page(heading, table.columns, table.texts(), (*flags, *below), self.caution)

    def _small_figure(self) -> Figure | None:
        names = list(summaries.first_entries(self.samples, MOST_ENTRIES))
        if names:
            return self.plot_posterior(names)
        return self.plot() if len(self.trace) else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the run that are no reason for caution, from its diagnostics."""
        return tuple(self.diagnostics.get("notes", ()))

    @property
    def rows_skipped(self) -> int:
        """Bad rows that were left out, with ``on_bad_row="skip"``."""
        return int(self.diagnostics.get("rows_skipped", 0))

    @property
    def rows_quarantined(self) -> int:
        """Bad rows that were written to a file, with ``on_bad_row="quarantine"``."""
        return int(self.diagnostics.get("rows_quarantined", 0))

    @property
    def columns_left_out(self) -> list[str]:
        """Columns of the data that do not hold numbers; the model did not read them."""
        return list(self.diagnostics.get("columns_left_out", ()))

    @property
    def files_left_out(self) -> list[str]:
        """Errors of files that could not be read, or not to their end, and were set aside."""
        return list(self.diagnostics.get("files_left_out", ()))

    @property
    def remarks(self) -> list[str]:
        """Further remarks: notes, columns left out, what slows the run, what "auto" chose."""
        largest = ("largest_value",) if Status.ROUNDED in self.flags else ()
        names = (*largest, "scale_remark", "host_remark", "chosen", "draws_remark")
        texts = (str(self.diagnostics.get(name, "")) for name in names)
        files = [f"set aside: {reason}" for reason in self.files_left_out]
        return [*self.notes, *files, *columns_remark(self.columns_left_out), *filter(None, texts)]

    def resample(self, num_samples: int, *, seed: int = 0) -> dict[str, np.ndarray]:
        """Equally weighted posterior draws, by systematic resampling of the weighted ones.

        They are shuffled: sorted by island they would look like a chain that does not mix.

        >>> posterior = Evidence(-1.0, 0.1, 9, "smc", Trace(), {"a": np.arange(2.0)}, np.zeros(2))
        >>> sorted(posterior.resample(4)["a"].tolist())
        [0.0, 0.0, 1.0, 1.0]
        """
        check_count("num_samples", num_samples)
        generator = np.random.default_rng(seed)
        chosen = systematic_indices(generator.random(), self.log_weights, num_samples)
        chosen = generator.permutation(chosen)
        return {name: draws[chosen] for name, draws in self.samples.items()}

    def summary(self, probability: float = PROBABILITY) -> Table:
        """Posterior mean, standard deviation and intervals of every parameter.

        Two intervals hold the probability: the equal-tailed one, between the quantiles that the
        columns name, and the highest-density interval (HDI), the shortest one. Reasons for
        caution are printed below.

        Args:
            probability: mass inside the intervals.

        >>> draws = {"a": np.array([0.0, 1.0, 2.0, 9.0])}
        >>> posterior = Evidence(-1.0, 0.1, 9, "smc", Trace(), draws, np.log(np.full(4, 0.25)))
        >>> print(posterior.summary(0.75))
           mean     sd  12.5%  50%  87.5%  75% HDI low  75% HDI high
        a     3  3.536      0    1      9            0             2
        """
        if not 0 < probability < 1:
            raise MethodError(f"probability must lie between 0 and 1, not {probability}.")
        table = summaries.summarise(self.samples, self._weights(), probability)
        notes = tuple(filter(None, (self.caution, *self.notes)))
        return replace(table, notes=notes) if notes else table

    def _weights(self) -> np.ndarray:
        weights = np.exp(self.log_weights - np.max(self.log_weights))
        return np.asarray(weights / weights.sum())

    def predict(
        self, function: Function, inputs: Any = None, *, num_draws: int = 1000, seed: int = 0
    ) -> Prediction:
        r"""Draws from the posterior predictive distribution.

        .. math:: p(y^* | x^*, y) = \int p(y^* | x^*, \theta) \, p(\theta | y) \, d\theta

        Args:
            function: ``function(parameters, row)``, or ``function(parameters)`` without inputs,
                written with ``jax.numpy``. It returns a NumPyro distribution, from which one value
                is drawn for each posterior draw and row, or plain numbers, taken as they are.
            inputs: rows to predict, in any form that ``wb.evidence`` takes in memory.
            num_draws: posterior draws.
            seed: the same seed gives the same numbers.

        >>> import numpyro.distributions as dist
        >>> draws = {"w": np.array([1.0, 3.0])}
        >>> posterior = Evidence(-1.0, 0.1, 9, "smc", Trace(), draws, np.log(np.full(2, 0.5)))
        >>> line = posterior.predict(lambda p, x: p["w"] * x, [1.0, 10.0], num_draws=500)
        >>> line.mean.tolist(), line.draws.shape
        ([2.0, 20.0], (500, 2))
        >>> noisy = posterior.predict(lambda p, x: dist.Normal(p["w"] * x, 1.0), [1.0, 10.0])
        >>> low, high = noisy.interval(0.9)
        >>> bool(low[1] < 20 < high[1])
        True
        """
        check_count("num_draws", num_draws)
        if not self.samples:
            raise MethodError("This result holds no posterior draws to predict from.")
        samples = self.resample(num_draws, seed=seed)
        draws = predict(function, samples, inputs, seed=seed)
        return Prediction(draws, None if inputs is None else draws.shape[1])

    def plot(self, *, axes: Surface | None = None) -> Figure:
        """The path, along the rows seen or along the annealing steps, together with the answer.

        If the path does not end at the answer, a line above explains why.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or one axes per panel.

        >>> trace = Trace(power=np.array([0.1, 1.0]), log_evidence=np.array([-1.0, -9.0]),
        ...               ess=np.array([32.0, 40.0]))
        >>> figure = Evidence(-9.0, 0.1, 9, "smc", trace, {}, np.zeros(1)).plot()
        >>> [axes.get_ylabel().split()[0] for axes in figure.axes]
        ['log', 'power', 'ESS']
        """
        answer = explain_answer(
            self.log_evidence, self.std_error, self.trace, self.diagnostics
        )._replace(caution=self.caution, trust=self.trust)
        return plot_paths({str(self).splitlines()[0]: self.trace}, answer=answer, axes=axes)

    def _drawn_posterior(self) -> DrawnPosterior:
        title = "\n".join(filter(None, (str(self).splitlines()[0], self.caution)))
        return DrawnPosterior(self.samples, self._weights(), title)

    def to_arviz(
        self,
        model: Model | None = None,
        data: Any = None,
        *,
        num_samples: int = 1000,
        seed: int = 0,
    ) -> Any:
        """Equally weighted draws for ArviZ, as one chain: a data tree, or InferenceData (0.x).

        Args:
            model: adds the log-likelihood of every row, for ``az.loo``.
            data: the observations, in memory; without a model they are added unchanged.
            num_samples: draws, resampled by their weights.
            seed: the same seed gives the same draws.
        """
        drawn = self.resample(num_samples, seed=seed)
        samples = {name: values[None] for name, values in drawn.items()}
        observed = arviz_export.observe(samples, model, data)
        return arviz_export.to_arviz(samples, None, observed)

    def save(self, path: str | Path) -> None:
        """Write the result to one safetensors file; ``load`` reads it back exactly."""
        checkpoint_file.write(path, SCHEMA, *self.to_file_content())

    def to_file_content(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The arrays and the plain values that a file holds."""
        arrays = {f"trace/{name}": column for name, column in self.trace.items()}
        arrays |= {f"samples/{name}": draws for name, draws in self.samples.items()}
        arrays["log_weights"] = self.log_weights
        plain = {}
        for name, value in self.diagnostics.items():
            if isinstance(value, np.ndarray):
                arrays[f"diagnostics/{name}"] = value
            else:
                plain[name] = value
        return arrays, {
            "log_evidence": self.log_evidence,
            "std_error": self.std_error,
            "num_observations": self.num_observations,
            "method": self.method,
            "elapsed": self.elapsed,
            "flags": [flag.name for flag in self.flags],
            "diagnostics": plain,
            "fingerprint": None if self.fingerprint is None else self.fingerprint.plain(),
            "order": list(arrays),
        }

    @classmethod
    def load(cls, path: str | Path) -> Evidence:
        """Read a result that ``save`` wrote; one of nested sampling is a ``NestedEvidence``.

        A damaged file, or one that cannot be a result, raises a ``CheckpointError``; no code in
        the file is run. The digest protects against damage, not against attackers: who can write
        the file can write other numbers into it.
        """
        arrays, metadata = checkpoint_file.read(path, SCHEMA)
        with checkpoint_file.refusing(path, "result"):
            return cls.from_file_content(arrays, metadata)

    @classmethod
    def from_file_content(cls, arrays: dict[str, np.ndarray], metadata: dict[str, Any]) -> Evidence:
        """The result with the contents of a file; a ValueError if they cannot be one."""
        check_evidence(arrays, metadata)
        groups: dict[str, dict[str, np.ndarray]] = {}
        for full_name in metadata["order"]:
            group, _, name = full_name.partition("/")
            groups.setdefault(group, {})[name] = arrays[full_name]
        seen = metadata.get("fingerprint")  # missing in older files
        kind = _class_of(cls, metadata["method"])
        return kind(
            log_evidence=float(metadata["log_evidence"]),
            std_error=float(metadata["std_error"]),
            num_observations=metadata["num_observations"],
            method=metadata["method"],
            trace=Trace(**groups.get("trace", {})),
            samples=groups.get("samples", {}),
            log_weights=arrays["log_weights"],
            diagnostics=_with_tuples(metadata["diagnostics"]) | groups.get("diagnostics", {}),
            flags=tuple(Status[name] for name in metadata["flags"]),
            elapsed=float(metadata["elapsed"]),
            fingerprint=None if seen is None else Fingerprint.from_plain(seen),
        )

    def to_json(self) -> str:
        """The numbers, without draws, as one line of JSON; unknown numbers are null."""
        return json.dumps(
            {
                "log_evidence": self.log_evidence if math.isfinite(self.log_evidence) else None,
                "std_error": self.std_error if math.isfinite(self.std_error) else None,
                "trusted": self.is_trusted,
                "lower_bound": self.is_lower_bound,
                "notes": list(self.notes),
                "num_observations": self.num_observations,
                "method": self.method,
                "status": [flag.name for flag in self.flags] or [Status.OK.name],
                "rows_skipped": self.rows_skipped,
                "rows_quarantined": self.rows_quarantined,
                "columns_left_out": self.columns_left_out,
                "elapsed": self.elapsed,
            }
        )


def _with_tuples(diagnostics: dict[str, Any]) -> dict[str, Any]:
    """Diagnostics from a file, in which tuples are lists."""
    return {n: tuple(v) if n == "notes" else v for n, v in diagnostics.items()}


def _class_of(cls: type[Evidence], method: str) -> type[Evidence]:
    """The class of a loaded result: that of its method, which may be in a room above this one."""
    public = OF_METHOD.get(method)
    if cls is not Evidence or public is None:
        return cls
    found: type[Evidence] = getattr(importlib.import_module(PACKAGE), public)
    return found
