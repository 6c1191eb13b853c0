"""One round of islands of several models: on data in memory, or in one pass over the data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from weighbridge.core import interrupts
from weighbridge.core.errors import MethodError, ModelError
from weighbridge.core.progress.reporters import Reporter
from weighbridge.core.rollback import restored_on_error
from weighbridge.core.status import Status
from weighbridge.core.types import PyTree
from weighbridge.data.cutting import join, rechunk
from weighbridge.data.quarantine import Quarantine
from weighbridge.data.row_checking import RowPolicy
from weighbridge.data.row_order import in_random_order, order_matters
from weighbridge.data.sources.source import Source
from weighbridge.data.values import num_rows
from weighbridge.estimators.protocols import BatchMethod, SequentialMethod
from weighbridge.models.held import Held
from weighbridge.results.evidence_result import Evidence
from weighbridge.weighing.common_rows import CommonRows
from weighbridge.weighing.competitor import Competitor
from weighbridge.weighing.resuming import estimate_in
from weighbridge.weighing.session import Session

OneRound = Callable[[int, Sequence[str]], dict[str, Evidence]]
# Gives the admitted rows of a block for one model, without rows that another model cannot use.
Gate = Callable[[PyTree, "np.ndarray | None"], PyTree]
Cut = Callable[[Mapping[str, Gate], CommonRows, Iterable[PyTree]], Iterator[dict[str, PyTree]]]


class Policy(NamedTuple):
    """What is done with bad rows, and the quarantine file for them."""

    on_bad_row: RowPolicy
    quarantine: Quarantine | None


class Weighing(NamedTuple):
    """The inputs that all rounds of a weighing share, for any method.

    Attributes:
        competitors: the models, by name.
        source: the source of the rows, the same for all models.
        seed: the same for all models.
        policy: what is done with bad rows.
        reporter: shows the progress.
        method_shown: name of the method, if several are tried.
    """

    competitors: Mapping[str, Competitor]
    source: Source
    seed: int
    policy: Policy
    reporter: Reporter
    method_shown: str = ""

    def label(self, name: str) -> str:
        """Name of a model in progress reports, and of the method; empty if there is one of each."""
        several = name if len(self.competitors) > 1 else ""
        return ", ".join(filter(None, (several, self.method_shown)))


def held_rounds(
    weighing: Weighing,
    method: BatchMethod,
    holders: Mapping[str, Held],
    *,
    numbered: bool,
    resume: str | Path | None = None,
) -> OneRound:
    """Return a function that runs one round of islands on data in memory.

    Args:
        weighing: the models.
        method: the method of one round.
        holders: the rows of each model.
        numbered: whether reports show the number of the round, since there may be several.
        resume: the file of the run, for a method that can go on from it, and one model.
    """
    seed, reporter = weighing.seed, weighing.reporter
    estimates = {name: estimate_in(resume, held, method, seed) for name, held in holders.items()}

    def one_round(first_island: int, names: Sequence[str]) -> dict[str, Evidence]:
        number = first_island // method.num_islands + 1 if numbered else 0
        results = {}
        for name in names:
            report = method.report_to(reporter, weighing.label(name), number)
            held = holders[name]
            try:
                result = estimates[name](
                    held.model,
                    *held.contents(),
                    seed=seed,
                    first_island=first_island,
                    report=report,
                )
            except interrupts.Interrupted:
                break
            told = held.noticed() | held.about_flatness(result.flags)
            noticed = {**result.diagnostics, **told}
            results[name] = replace(result, diagnostics=noticed, fingerprint=held.fingerprint)
            if interrupts.is_due():
                break
            interrupts.keep()
        return results

    return one_round


def hold_rows(weighing: Weighing, names: Sequence[str]) -> dict[str, Held]:
    """Load all the data for some of the models."""
    competitors, source, policy = weighing.competitors, weighing.source, weighing.policy
    holders = {n: Held(competitors[n].model, *policy, source.left_out) for n in names}
    common = CommonRows(competitors, policy.on_bad_row, source.left_out)
    for held in holders.values():
        held.checker.unread = source.unread
    for block in source.blocks():
        unusable = common.unusable(block)
        for name, held in holders.items():
            held.add(competitors[name].view(block), unusable, block)
    return holders


def streamed_rounds(weighing: Weighing, method: SequentialMethod, *, shuffled: bool) -> OneRound:
    """Return a function that runs one round of islands in one pass over the data.

    Args:
        weighing: the models and the data.
        method: the method of one round.
        shuffled: whether rows are taken in random order.
    """
    competitors, source, seed, policy, reporter, _ = weighing

    def one_round(first_island: int, names: Sequence[str]) -> dict[str, Evidence]:
        sessions = {
            name: Session(
                competitors[name].model,
                method,
                seed,
                policy.on_bad_row,
                first_island,
                policy.quarantine,
                left_out=source.left_out,
            )
            for name in names
        }
        for session in sessions.values():
            session.checker.unread = source.unread
        reporter.start(source.num_rows)
        common = CommonRows(competitors, policy.on_bad_row, source.left_out)
        gates = {name: partial(_pass, sessions[name], competitors[name].view) for name in names}
        sizes = partial(method.chunk_after, in_memory=source.in_memory)
        cut: Cut = partial(_admitted_chunks, sizes=sizes)
        if shuffled:
            cut = partial(
                _shuffled_chunks,
                order=partial(
                    in_random_order, seed=seed, first_island=first_island, size_after=sizes
                ),
            )
        flags: tuple[Status, ...] = ()
        try:
            for chunks in cut(gates, common, source.blocks()):
                interrupts.check()
                with _all_or_none(sessions):
                    for name, session in sessions.items():
                        if name in chunks and num_rows(chunks[name]):
                            with _noting_row_order(shuffled):
                                session.absorb(chunks[name])
                            if all(session.run.path for session in sessions.values()):
                                interrupts.keep()
                            _report(reporter, session, weighing.label(name))
        except interrupts.Interrupted:
            if not all(session.run.path for session in sessions.values()):
                return {}
            flags = (Status.INTERRUPTED,)
        told = {"row_order": "random" if shuffled else "as given"}
        results = {name: session.result() for name, session in sessions.items()}
        return {
            name: replace(
                result,
                diagnostics=result.diagnostics | told,
                flags=tuple(dict.fromkeys(flags + result.flags)),
            )
            for name, result in results.items()
        }

    return one_round


@contextlib.contextmanager
def _all_or_none(sessions: Mapping[str, Session]) -> Iterator[None]:
    """A block that restores several runs if it fails, so that all have seen the same rows."""
    with contextlib.ExitStack() as stack:
        for session in sessions.values() if len(sessions) > 1 else ():
            stack.enter_context(restored_on_error(session))
            stack.enter_context(session.run.undoable())
        yield


@contextlib.contextmanager
def _noting_row_order(shuffled: bool) -> Iterator[None]:
    """A block that adds a note to model errors if the rows were shuffled."""
    try:
        yield
    except ModelError as error:
        if shuffled:
            error.add_note(
                "Rows are counted in the random order in which they were taken; "
                "a method with shuffle=False takes them in the order given."
            )
        raise


def is_shuffled(method: SequentialMethod, source: Source) -> bool:
    """Whether the rows are taken in random order, the same for all models."""
    if method.shuffles and not source.in_memory:
        raise MethodError(
            "shuffle=True needs all rows in memory, and these come from files or an iterator: "
            "read them into arrays first, or leave it out."
        )
    undecided = method.shuffles is None
    if undecided and source.in_memory and source.num_rows is not None:
        return order_matters(join(list(source.blocks())))
    return bool(method.shuffles)


def _pass(
    session: Session,
    view: Callable[[PyTree], PyTree],
    block: PyTree,
    unusable: np.ndarray | None,
) -> PyTree:
    """The model's columns of a block of the common data, without unusable rows."""
    return session.admit(view(block), unusable, block)


def _admitted_chunks(
    gates: Mapping[str, Gate],
    common: CommonRows,
    blocks: Iterable[PyTree],
    sizes: Callable[[int], int],
) -> Iterator[dict[str, PyTree]]:
    """Chunks for each model; all models check the rows before any model absorbs them."""
    if len(gates) == 1:
        ((name, gate),) = gates.items()
        # Check rows before cutting them into chunks: skipped rows then do not shorten chunks.
        admitted = (gate(block, common.unusable(block)) for block in blocks)
        for chunk in rechunk(admitted, sizes):
            yield {name: chunk}
        return
    for block in rechunk(blocks, sizes):
        unusable = common.unusable(block)
        yield {name: gate(block, unusable) for name, gate in gates.items()}


def _shuffled_chunks(
    gates: Mapping[str, Gate],
    common: CommonRows,
    blocks: Iterable[PyTree],
    order: Callable[[PyTree], Iterator[PyTree]],
) -> Iterator[dict[str, PyTree]]:
    """Chunks in random order; all rows are first checked in the given order."""
    held: dict[str, list[PyTree]] = {name: [] for name in gates}
    for block in blocks:
        unusable = common.unusable(block)
        for name, gate in gates.items():
            held[name].append(gate(block, unusable))
    streams = [order(join(rows)) if rows else iter(()) for rows in held.values()]
    for chunks in zip_longest(*streams):
        yield {name: chunk for name, chunk in zip(held, chunks) if chunk is not None}


def _report(reporter: Reporter, session: Session, label: str) -> None:
    if session.run.path:
        point = session.run.path[-1]
        reporter.update(session.run.num_rows, point.log_evidence, point.annealing_steps, label)
