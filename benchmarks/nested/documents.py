"""``python -m benchmarks.nested.documents``: nested sampling, AIS and SGAIS as they were published.

Three models and 1,000 to 100,000 rows, each method with the parameters of its document: log
evidence per row and seconds (Cameron 2020, thesis, figures 5.2 to 5.7). ``--agreement`` makes
figure A1 of Cameron, Eggers & Kroon (2019): five runs each of nested sampling and AIS on a mixture
in one dimension, with 20 to 1,000 rows. Every run is kept; the commands go on where they stopped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import weighbridge as wb
from benchmarks import report
from weighbridge.plots.canvas import save_figure, styles, write_out_numbers
from weighbridge.plots.surface import panels

NAME, AGREEMENT = "nested_documents", "nested_agreement"
SIZES = (1_000, 10_000, 100_000)
# Of the documents: AIS has the parameters of SGAIS on all rows, 10 particles and an ESS of 5.
PUBLISHED_MOVES = wb.SGHMC(step_size=0.1, friction=0.2)


def two_particles() -> wb.NestedSampling:
    """Nested sampling of the documents: 2 particles, SGHMC with reflection, the 1 % rule."""
    return wb.NestedSampling(num_live=2, num_islands=1, moves="sghmc")


def annealed() -> wb.AIS:
    """AIS of the documents."""
    return wb.AIS(
        num_islands=1, num_particles=10, target_ess=0.5, ess="incremental", moves=PUBLISHED_MOVES
    )


class Method(NamedTuple):
    """A method of the tables: what it is, and how to make it (this may fail)."""

    title: str
    build: Callable[[], Any]


METHODS: dict[str, Method] = {
    "ns": Method("nested sampling, 2 particles, SGHMC", two_particles),
    "ais": Method("AIS, 10 particles, SGHMC", annealed),
    "sgais": Method("SGAIS as published", wb.SGAIS.published),
    "seq": Method("sequential SG-MCMC", lambda: wb.SequentialSGMCMC(start_with=None)),
    "seq-hybrid": Method(
        "sequential SG-MCMC, nested start",
        lambda: wb.SequentialSGMCMC(start_with=wb.NestedSampling()),
    ),
    "nested": Method("`wb.NestedSampling()`", wb.NestedSampling),
    "ais-default": Method("`wb.AIS()`", wb.AIS),
    "sgais-default": Method("`wb.SGAIS()`", wb.SGAIS),
}
AGREEING = ("ns", "ais")


class Published(NamedTuple):
    """A model of the documents, and its data."""

    title: str
    model: Callable[[], wb.Model]
    simulate: Callable[[int], Any]


MODELS: dict[str, Published] = {
    "linear": Published(
        "linear regression, 6 parameters",
        wb.zoo.linear.model,
        lambda rows: wb.zoo.linear.simulate(rows, seed=1),
    ),
    "softmax": Published(
        "softmax regression, 44 parameters",
        wb.zoo.logistic.model,
        lambda rows: wb.zoo.logistic.simulate(rows, seed=1),
    ),
    "mixture": Published(
        "mixture of 5 in 2-D, 24 parameters",
        wb.zoo.mixture.model,
        lambda rows: wb.zoo.mixture.simulate(rows, seed=1),
    ),
}
HEADER = ("model", "rows", "method", "log Z / rows", "error / rows", "stated", "CPU s", "flags")


def run_once(model: wb.Model, data: Any, method_name: str, seed: int) -> dict[str, Any]:
    """One run; a method that is not there, or refuses, leaves its message."""
    began = time.process_time()
    try:
        method = METHODS[method_name].build()
        result = wb.evidence(model, data, method, seed=seed, progress=False)
    except (wb.WeighbridgeError, KeyError) as error:
        # A KeyError is a defect; the other rows are measured all the same.
        return {"failure": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {
        "answer": result.log_evidence,
        "stated": result.claimed_error,
        "flags": [flag.name for flag in result.flags],
        "seconds": time.process_time() - began,
    }


def exact(model_name: str, data: Any) -> float | None:
    """The exact log evidence, where it is known."""
    return wb.zoo.linear.log_evidence(data) if model_name == "linear" else None


def first_rows(data: Any, count: int) -> Any:
    return jax.tree_util.tree_map(lambda column: column[:count], data)


def table(records: dict[str, Any]) -> str:
    """Log evidence per row and seconds, for all sizes and methods."""
    rows = []
    for model_name, published in MODELS.items():
        for size in SIZES:
            for method_name, method in METHODS.items():
                record = records.get(f"{model_name}/{size}/{method_name}")
                if record is None:
                    continue
                cells = [published.title, f"{size:,}", method.title]
                if "failure" in record:
                    rows.append([*cells, record["failure"], "", "", "", ""])
                    continue
                known = record["exact"]
                error = "" if known is None else f"{(record['answer'] - known) / size:+.2e}"
                per_row = f"{record['answer'] / size:.5f}"
                cost = f"{record['seconds']:.1f}"
                stated = f"{record['stated']:.3f}"
                rows.append([*cells, per_row, error, stated, cost, ", ".join(record["flags"])])
    return report.table(HEADER, rows)


def draw(records: dict[str, Any], folder: Path) -> list[str]:
    """Log evidence per row and seconds against the rows, a figure for each model."""
    written = []
    for model_name in MODELS:
        curves: dict[str, list[tuple[int, float, float]]] = {}
        truth = {}
        for size in SIZES:
            for method_name in METHODS:
                record = records.get(f"{model_name}/{size}/{method_name}", {})
                if "answer" in record:
                    point = (size, record["answer"] / size, record["seconds"])
                    curves.setdefault(method_name, []).append(point)
                    if record["exact"] is not None:
                        truth[size] = record["exact"] / size
        if not curves:
            continue
        drawn = panels(None, (2, 1), (7.5, 5.6), sharex=True)
        for (method_name, points), style in zip(curves.items(), styles(len(curves))):
            sizes, heights, costs = zip(*points)
            label = METHODS[method_name].title.replace("`", "")
            for axes, values in zip(drawn.flat, (heights, costs)):
                axes.plot(sizes, values, marker="o", markersize=4, label=label, **style)
        if truth:
            drawn.flat[0].plot(*zip(*truth.items()), "k+", markersize=12, zorder=3)
        drawn.flat[0].set_ylabel("log evidence per row (nats)")
        drawn.flat[1].set_ylabel("CPU seconds, with\ncompilation")
        drawn.flat[1].set_yscale("log")
        drawn.flat[1].set_xscale("log")
        drawn.flat[1].set_xlabel("rows" + (" (crosses: exact)" if truth else ""))
        for axis in (drawn.flat[1].xaxis, drawn.flat[1].yaxis):
            write_out_numbers(axis)
        name = f"{NAME}-{model_name}.png"
        titles = [METHODS[method_name].title.replace("`", "") for method_name in curves]
        save_figure(drawn.finish(titles), folder / name)
        written.append(name)
    return written


def compare(options: argparse.Namespace) -> None:
    """All models, sizes and methods; a method stops where its next run would exceed the limit."""
    records = report.load(NAME, options.output)
    for model_name in options.models:
        published = MODELS[model_name]
        whole = published.simulate(max(options.sizes))
        for method_name in options.methods:
            expected = 0.0
            for size in sorted(options.sizes):
                key = f"{model_name}/{size}/{method_name}"
                known = records.get(key, {})
                if "answer" not in known or options.again:
                    if expected > 60 * options.limit:
                        text = f"not run: about {expected / 60:.0f} minutes"
                        records[key] = {"failure": text}
                        continue
                    data = first_rows(whole, size)
                    found = run_once(published.model(), data, method_name, seed=options.seed)
                    records[key] = {"exact": exact(model_name, data), **found}
                    report.save(NAME, records, options.output)
                    print(key, found, flush=True)
                # Ten times the rows cost about ten times as much.
                expected = 10 * records[key].get("seconds", 0.0)
    report.save(NAME, records, options.output)
    figures = draw(records, options.output)
    text = (
        "Each method has the parameters of its document; the rows of a smaller size are the first "
        "ones of the larger. Seconds are CPU seconds of the whole call, with compilation. One run "
        "each, so an answer is as uncertain as one run is. The last three methods have this "
        "library's defaults.\n\n"
    )
    text += table(records) + "\n\n" + "\n\n".join(f"![]({name})" for name in figures)
    report.write(NAME, "Methods of the documents on their three models", text, options.output)


def agree(options: argparse.Namespace) -> None:
    """Five runs of nested sampling and AIS for each number of rows."""
    records = report.load(AGREEMENT, options.output)
    model = wb.zoo.mixture.model(3, 1)
    whole = wb.zoo.mixture.simulate(1_000, num_components=3, num_features=1, seed=1)
    began = time.process_time()
    for size in range(options.step, 1_001, options.step):
        data = first_rows(whole, size)
        for method_name in options.agreeing:
            for seed in range(1, options.runs + 1):
                key = f"{size}/{method_name}/{seed}"
                late = time.process_time() - began > 60 * options.minutes
                if "answer" in records.get(key, {}) or late:
                    continue
                records[key] = run_once(model, data, method_name, seed)
                report.save(AGREEMENT, records, options.output)
                print(key, records[key], flush=True)
    write_agreement(records, options.output)


def write_agreement(records: dict[str, Any], folder: Path) -> None:
    """Figure A1, and how often the ranges of the two methods overlap."""
    found: dict[str, dict[int, list[float]]] = {}
    failures = []
    for key, record in records.items():
        size, method_name, _ = key.split("/")
        if "answer" in record:
            found.setdefault(method_name, {}).setdefault(int(size), []).append(record["answer"])
        else:
            failures.append(f"{METHODS[method_name].title}: {record['failure']}")
    lines = [*dict.fromkeys(failures)]
    if found:
        folder.mkdir(parents=True, exist_ok=True)
        draw_agreement(found, folder / f"{AGREEMENT}.png")
        lines.append(f"![]({AGREEMENT}.png)")
    names = list(found)
    if len(names) > 1:
        common = sorted(set(found[names[0]]) & set(found[names[1]]))
        first, second = (found[name] for name in names[:2])
        overlap = sum(
            max(first[size]) >= min(second[size]) and max(second[size]) >= min(first[size])
            for size in common
        )
        apart = np.array([np.mean(first[size]) - np.mean(second[size]) for size in common])
        lines.append(
            f"The ranges of {METHODS[names[0]].title} and {METHODS[names[1]].title} overlap at "
            f"{overlap} of {len(common)} sizes; the mean of the first minus that of the second is "
            f"{apart.mean():+.2f} nats on average, with a standard deviation of {apart.std():.2f} "
            "over sizes."
        )
    title = "Nested sampling and AIS on a mixture of three, 1-D (figure A1)"
    report.write(AGREEMENT, title, "\n\n".join(lines), folder)


def draw_agreement(found: dict[str, dict[int, list[float]]], path: Path) -> None:
    """Ranges of the log evidence, and of its distance from the mean of all runs."""
    drawn = panels(None, (2, 1), (7.5, 5.6), sharex=True)
    sizes_of_all = sorted({size for runs in found.values() for size in runs})
    middle = {
        size: np.mean([answer for runs in found.values() for answer in runs.get(size, [])])
        for size in sizes_of_all
    }
    for (method_name, runs), style in zip(found.items(), styles(len(found))):
        sizes = sorted(runs)
        label = METHODS[method_name].title.replace("`", "")
        for axes, centred in zip(drawn.flat, (False, True)):
            shift = np.array([middle[size] if centred else 0.0 for size in sizes])
            low, high, mean = (
                np.array([of(runs[size]) for size in sizes]) - shift for of in (min, max, np.mean)
            )
            axes.fill_between(sizes, low, high, color=style["color"], alpha=0.25, linewidth=0)
            axes.plot(sizes, mean, label=label, **style)
    drawn.flat[0].set_ylabel("log evidence (nats)")
    drawn.flat[1].set_ylabel("minus the mean\nof all runs (nats)")
    drawn.flat[1].set_xlabel("rows (shaded: lowest and highest of the runs)")
    titles = [METHODS[name].title.replace("`", "") for name in found]
    save_figure(drawn.finish(titles), path)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.nested.documents", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--sizes", nargs="+", type=int, choices=SIZES, default=SIZES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=4000 / 60, help="CPU minutes of a run")
    parser.add_argument("--again", action="store_true", help="also what was measured before")
    parser.add_argument("--agreement", action="store_true", help="figure A1 instead")
    parser.add_argument("--agreeing", nargs="+", choices=METHODS, default=AGREEING)
    parser.add_argument("--step", type=int, default=20, help="of the rows of figure A1")
    parser.add_argument("--runs", type=int, default=5, help="of each method in figure A1")
    parser.add_argument("--minutes", type=float, default=240.0, help="CPU time of figure A1")
    parser.add_argument("--output", type=Path, default=report.RESULTS, help="folder of the results")
    options = parser.parse_args(arguments)
    (agree if options.agreement else compare)(options)


if __name__ == "__main__":
    main()
