"""The result of sampling: named draws of several chains, and the kernel's statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weighbridge import diagnostics
from weighbridge.core import checkpoint_file
from weighbridge.core.checks import check_count
from weighbridge.core.constants import PROBABILITY
from weighbridge.core.errors import CheckpointError, MethodError
from weighbridge.core.pickling import travels
from weighbridge.core.tables import summaries
from weighbridge.core.tables.findings import Findings
from weighbridge.core.tables.notebook import MOST_ENTRIES, MOST_ROWS, Page, Shown
from weighbridge.core.tables.table import Table
from weighbridge.data.values import columns_remark
from weighbridge.diagnostics.draws import scalar_chains
from weighbridge.plots.chains import plot_chains
from weighbridge.plots.correlation import plot_autocorrelation as correlation_plot_autocorrelation
from weighbridge.plots.energy import plot_energy as energy_plot_energy
from weighbridge.plots.labelling import Labelling
from weighbridge.results import arviz_export
from weighbridge.results.posterior_figure import DrawnPosterior, PosteriorFigure
from weighbridge.results.prediction import Function, Prediction, predict
from weighbridge.results.saved_content import check_posterior

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from weighbridge.models.model import Model
    from weighbridge.plots.surface import Surface

SCHEMA = "weighbridge.posterior.2"


@travels(never=["_extend"], if_possible=["kernel"])
@dataclass(frozen=True, eq=False, repr=False)
class Posterior(PosteriorFigure, Shown):
    """Draws of a posterior, chain by chain.

    Attributes:
        samples: draws by parameter name, chains x draws x shape.
        positions: the same as unconstrained vectors, chains x draws x coordinates.
        stats: statistics of each draw, chains x draws: ``acceptance``, ``divergent``, ``energy``,
            ``step_size``, ``tree_depth``, ``num_leapfrog``, as far as the kernel has them. With
            ``thin`` also ``step_energies``, chains x draws x 3: mean, variance and mean square
            change of the energy over the steps before each draw.
        kernel: the tuned kernel; its step size and metric are averages over the chains. With
            ``num_warmup=0`` it continues without a new warm-up.
        num_warmup: number of warm-up steps.
        seconds: time for the warm-up and for the draws, compilation included.
        remarks: remarks about the run, for example that it was interrupted.
        max_depth: largest number of doublings of a trajectory, if there is such a limit.
        state: state of the chains, for ``extend`` and ``save``.
        columns_left_out: columns of the data that do not hold numbers; the model did not read them.
    """

    samples: dict[str, np.ndarray]
    positions: np.ndarray
    stats: dict[str, np.ndarray]
    kernel: Any = None
    num_warmup: int = 0
    seconds: tuple[float, float] = (0.0, 0.0)
    remarks: tuple[str, ...] = ()
    max_depth: int | None = None
    state: dict[str, Any] = field(default_factory=dict)
    _extend: Callable[[int], Posterior] | None = None
    columns_left_out: tuple[str, ...] = ()

    @property
    def num_chains(self) -> int:
        """Number of chains; every walker of an ensemble counts as one."""
        return len(self.positions)

    @property
    def num_samples(self) -> int:
        """Number of draws of each chain."""
        return int(self.positions.shape[1])

    @cached_property
    def warnings(self) -> Findings:
        """Every reason for caution, in words, with its remedy; empty if there is none.

        It is a tuple of texts, and a table (``warnings.to_pandas()``).
        """
        found = diagnostics.warnings_of(self.samples, self.stats, self.max_depth)
        return Findings((*self.remarks, *found))

    @property
    def divergences(self) -> dict[str, np.ndarray]:
        """Parameters at the draws with divergent trajectories, to find the problematic region.

        >>> draws, stats = np.zeros((1, 3)), {"divergent": np.array([[False, True, True]])}
        >>> Posterior({"a": draws}, draws[..., None], stats).divergences["a"].shape
        (2,)
        """
        nowhere = np.zeros(self.positions.shape[:2], bool)
        where = np.asarray(self.stats.get("divergent", nowhere), bool)
        return {name: draws[where] for name, draws in self.samples.items()}

    def summary(self, probability: float = PROBABILITY) -> Table:
        """Mean, standard deviation, HDI, Monte Carlo error, ESS and R-hat of every parameter.

        Reasons for caution (``warnings``) are printed below.

        Args:
            probability: mass inside the highest-density interval (HDI), the shortest such interval.

        >>> draws = np.random.default_rng(0).normal(size=(4, 100))
        >>> Posterior({"a": draws}, draws[..., None], {}).summary(0.5).columns[2:4]
        ('50% HDI low', '50% HDI high')
        """
        table = diagnostics.summarise(self.samples, probability)
        return replace(table, notes=tuple(self.warnings)) if self.warnings else table

    def flat(self) -> dict[str, np.ndarray]:
        """The draws of all chains on one axis, draw by draw.

        >>> draws = {"a": np.array([[0.0, 1.0], [2.0, 3.0]])}
        >>> Posterior(draws, draws["a"][..., None], {}).flat()["a"].tolist()
        [0.0, 2.0, 1.0, 3.0]
        """
        return {
            name: np.swapaxes(draws, 0, 1).reshape(-1, *draws.shape[2:])
            for name, draws in self.samples.items()
        }

    def _header(self) -> str:
        plural = "" if self.num_chains == 1 else "s"
        header = f"{self.num_chains} chain{plural} of {self.num_samples:,} draws"
        if self.kernel is not None:
            header += f" by {type(self.kernel).__name__}"
        warm, drawn = self.seconds
        return f"{header} ({self.num_warmup:,} steps of warm-up, {warm + drawn:.1f} s)"

    def _cautions(self) -> tuple[str, ...]:
        return (*self.warnings, *columns_remark(self.columns_left_out))

    def __str__(self) -> str:
        cautions = (f"  {caution}" for caution in self._cautions())
        table = diagnostics.summarise(self.samples)
        return "\n".join([self._header(), str(table), *cautions])

    def _page(self) -> Page:
        entries = self._first_entries(MOST_ROWS)
        table = diagnostics.summarise(entries)
        more = summaries.num_entries(self.flat()) - len(entries)
        below = [f"{more:,} more entries of the parameters: see summary()"] if more else []
        return Page(self._header(), table.columns, table.texts(), (*self._cautions(), *below))

    def _small_figure(self) -> Figure:
        return self.plot_posterior(list(self._first_entries(MOST_ENTRIES)))

    def _first_entries(self, most: int) -> dict[str, np.ndarray]:
        # The first axis must be the draws: chains x draws would be taken for a vector.
        flat = summaries.first_entries(self.flat(), most)
        shape = self.num_samples, self.num_chains
        return {name: draws.reshape(shape).T for name, draws in flat.items()}

    def __repr__(self) -> str:
        said = f"; {self._count_warnings()}" if self.warnings else ""
        return f"<Posterior: {self.num_chains} x {self.num_samples:,} draws{said}>"

    def _count_warnings(self) -> str:
        count = len(self.warnings)
        return f"{count} warning{'' if count == 1 else 's'}"

    def extend(self, num_samples: int) -> Posterior:
        """Continue every chain for this many draws; bit for bit equal to one long run."""
        if self._extend is None:
            raise MethodError(
                "This posterior was loaded or unpickled without its model. To continue, use "
                "wb.sample(model, data, kernel, resume=posterior, num_samples=...)."
            )
        more = self._extend(num_samples)
        left_out = self.columns_left_out
        return replace(more, columns_left_out=left_out) if left_out else more

    def predict(
        self, function: Function, inputs: Any = None, *, num_draws: int = 1000, seed: int = 0
    ) -> Prediction:
        """Draws from the posterior predictive distribution; see ``Evidence.predict``."""
        check_count("num_draws", num_draws)
        flat = self.flat()
        total = self.num_chains * self.num_samples
        chosen = np.random.default_rng(seed).permutation(total)
        chosen = np.sort(np.resize(chosen, num_draws))
        draws = predict(function, {n: v[chosen] for n, v in flat.items()}, inputs, seed=seed)
        return Prediction(draws, None if inputs is None else draws.shape[1])

    def plot(
        self,
        names: Sequence[str] | None = None,
        *,
        truths: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
        axes: Surface | None = None,
    ) -> Figure:
        """Marginals, traces and ranks of every chain, of up to eight scalar entries.

        Args:
            names: parameters (``"w"``) or entries of them (``"w[0]"``); by default all.
            truths: values to mark, by parameter or entry; for a parameter, an array of its shape.
            labels: other names of parameters or entries.
            units: units of measurement of parameters or entries.
            axes: where to draw: an empty matplotlib figure or subfigure, or n x 3 axes.
        """
        labelling = Labelling(truths, labels, units)
        divergent = self.stats.get("divergent")
        caution = f"caution: {self._count_warnings()}, see warnings" if self.warnings else ""
        return plot_chains(
            self.samples, divergent, names, labelling=labelling, caution=caution, axes=axes
        )

    def plot_autocorrelation(
        self,
        names: Sequence[str] | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        axes: Surface | None = None,
    ) -> Figure:
        """Autocorrelation of every chain by lag, of up to eight scalar entries.

        Args:
            names: parameters (``"w"``) or entries of them (``"w[0]"``); by default all.
            labels: other names of parameters or entries.
            axes: where to draw: an empty matplotlib figure or subfigure, or one axes per entry.
        """
        labelling = Labelling(labels=labels)
        return correlation_plot_autocorrelation(self.samples, names, labelling=labelling, axes=axes)

    def plot_energy(self, *, axes: Surface | None = None) -> Figure:
        """Energies of a Hamiltonian kernel, their changes, and the E-BFMI of every chain.

        Args:
            axes: where to draw: an empty matplotlib figure or subfigure, or two axes.
        """
        if "energy" not in self.stats:
            raise MethodError(
                "This posterior has no energies: kernels such as wb.NUTS() and wb.HMC() give them."
            )
        return energy_plot_energy(self.stats["energy"], self.stats.get("step_energies"), axes=axes)

    def _drawn_posterior(self) -> DrawnPosterior:
        total = self.num_chains * self.num_samples
        divergent = self.stats.get("divergent")
        marked = None if divergent is None else np.swapaxes(divergent, 0, 1).reshape(-1)
        return DrawnPosterior(self.flat(), np.full(total, 1 / total), repr(self)[1:-1], marked)

    def _num_effective(self, label: str) -> float:
        return float(diagnostics.ess(scalar_chains(self.samples)[label]))

    def to_arviz(self, model: Model | None = None, data: Any = None) -> Any:
        """Draws and statistics for ArviZ: a data tree, or InferenceData with ArviZ 0.x.

        Args:
            model: adds the log-likelihood of every row, for ``az.loo``.
            data: the observations, in memory; without a model they are added unchanged.

        >>> draws = np.random.default_rng(0).normal(size=(2, 50))
        >>> tree = Posterior({"a": draws}, draws[..., None], {}).to_arviz()
        >>> tree["posterior"]["a"].shape
        (2, 50)
        """
        observed = arviz_export.observe(self.samples, model, data)
        return arviz_export.to_arviz(self.samples, self.stats, observed)

    def save(self, path: str | Path) -> None:
        """Write draws, statistics and the state of the chains to one safetensors file.

        Draws that are not finite (a diverged chain) are refused: ``load`` would not accept them.
        """
        if not np.all(np.isfinite(self.positions)):
            raise CheckpointError(
                "Some draws are not finite, so they are not saved: a chain has diverged. Draw "
                "again with a smaller step size."
            )
        arrays = {f"samples/{name}": draws for name, draws in self.samples.items()}
        arrays |= {f"stats/{name}": values for name, values in self.stats.items()}
        arrays["positions"] = self.positions
        chains: list[list[np.ndarray]] = self.state.get("chains", [])
        for number, leaves in enumerate(chains):
            arrays |= {f"chain/{number}/{k}": leaf for k, leaf in enumerate(leaves)}
        metadata = {
            "names": list(self.samples),
            "stats": list(self.stats),
            "num_warmup": self.num_warmup,
            "seconds": list(self.seconds),
            "remarks": list(self.remarks),
            "max_depth": self.max_depth,
            "columns_left_out": list(self.columns_left_out),
            "leaves": [len(leaves) for leaves in chains],
            "plain": {k: v for k, v in self.state.items() if k != "chains"},
        }
        checkpoint_file.write(path, SCHEMA, arrays, metadata)

    @classmethod
    def load(cls, path: str | Path) -> Posterior:
        """Read a file of ``save``; ``wb.sample(..., resume=path)`` continues from it.

        A damaged file, or one that cannot be draws of chains, is refused with a
        ``CheckpointError``; no code in the file is run. The digest protects against damage, not
        against attackers.
        """
        arrays, metadata = checkpoint_file.read(path, SCHEMA)
        with checkpoint_file.refusing(path, "posterior"):
            check_posterior(arrays, metadata)
            chains = [
                [arrays[f"chain/{number}/{k}"] for k in range(count)]
                for number, count in enumerate(metadata["leaves"])
            ]
            warm, drawn = metadata["seconds"]
            return cls(
                samples={name: arrays[f"samples/{name}"] for name in metadata["names"]},
                positions=arrays["positions"],
                stats={name: arrays[f"stats/{name}"] for name in metadata["stats"]},
                num_warmup=metadata["num_warmup"],
                seconds=(float(warm), float(drawn)),
                remarks=tuple(metadata["remarks"]),
                max_depth=metadata["max_depth"],
                state={**metadata["plain"], "chains": chains},
                # Missing in older files.
                columns_left_out=tuple(map(str, metadata.get("columns_left_out", ()))),
            )
