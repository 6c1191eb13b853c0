"""The tools that are compared, and the facts that the driver needs without importing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Answer(NamedTuple):
    """The result of one run of a tool.

    Attributes:
        log_evidence: in nats.
        std_error: as stated by the tool; NaN if it states none.
        flags: the tool's own warnings about the result; None if it never gives any.
        calls: evaluations of the likelihood; None if the tool does not count them.
    """

    log_evidence: float
    std_error: float = float("nan")
    flags: tuple[str, ...] | None = None
    calls: int | None = None


Run = Callable[[int], Answer]
"""What an adapter's ``prepare(problem, data)`` returns: a function from a seed to an answer.

That of a nested sampler takes a third argument, its effort: a factor of its number of live points.
"""


class Tool(NamedTuple):
    """One tool.

    Attributes:
        title: its name in the table.
        environment: folder of its virtual environment below ``.venv-peers``; empty for ours.
        packages: packages whose versions are reported.
        language: jax, or numpy for tools that compile nothing or little.
        keeps_compiled: whether it caches compiled code on disk by default.
        ours: whether it is this library.
    """

    title: str
    environment: str
    packages: tuple[str, ...]
    language: str
    keeps_compiled: bool
    ours: bool = False


# The name is that of the adapter's module.
TOOLS: dict[str, Tool] = {
    "ours": Tool("weighbridge SMC", "", ("weighbridge", "jax"), "jax", True, True),
    "ours_nested": Tool("weighbridge nested", "", ("weighbridge", "jax"), "jax", True, True),
    "ours_nested_rounds": Tool(
        "weighbridge nested, in rounds", "", ("weighbridge", "jax"), "jax", True, True
    ),
    "particles": Tool(
        "particles, waste-free tempering", "numpy1", ("particles", "numpy"), "numpy", False
    ),
    "blackjax": Tool("BlackJAX tempered SMC", "main", ("blackjax", "jax"), "jax", False),
    "blackjax_nested": Tool("BlackJAX nested slice", "main", ("blackjax", "jax"), "jax", False),
    "pymc": Tool("PyMC SMC", "main", ("pymc", "pytensor"), "numpy", True),
    "dynesty": Tool("dynesty", "main", ("dynesty",), "numpy", False),
    "ultranest": Tool("UltraNest", "main", ("ultranest",), "numpy", False),
    "nautilus": Tool("nautilus", "main", ("nautilus-sampler",), "numpy", False),
    "jaxns": Tool("JAXNS", "main", ("jaxns", "jax"), "jax", False),
}
