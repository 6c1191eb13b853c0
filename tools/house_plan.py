"""The table of the move: the new place of every old module, and a description of each package.

``tools/move_house.py`` stops if a module has no row: add one. An old package moves as a whole,
except for modules that have a row of their own.
"""

from __future__ import annotations

# Old module (or package) -> new module, both below ``weighbridge``. An empty new name means that
# the module only re-exports names: it is deleted, and names are imported from their own modules.
HOMES: dict[str, str] = {
    # --- core -------------------------------------------------------------------------------
    "base": "",
    "errors": "core.errors",
    "status": "core.status",
    "types": "core.types",
    "constants": "core.constants",
    "travel": "core.pickling",
    "numerics": "core.compilation",
    "checks": "core.checks",
    "estimators.checks": "",
    "pytrees": "core.pytrees",
    "streams": "core.random",
    "particles": "",
    "resampling": "core.resampling",
    "islands": "core.islands",
    "parallel": "core.threads",
    "undo": "core.rollback",
    "interrupts": "core.interrupts",
    "forking": "core.forking",
    "turns": "core.turns",
    "addresses": "core.addresses",
    "expected": "core.saved_content",
    "durable": "core.atomic_write",
    "checkpoint": "core.checkpoint_file",
    "data.optional": "core.optional",
    "progress": "core.progress.reporters",
    "chain_progress": "core.progress.chains",
    "board": "core.progress.board",
    "pace": "core.progress.pace",
    "log_lines": "core.progress.log_lines",
    "announcing": "core.progress.announcing",
    "table": "core.tables.table",
    "tabular": "core.tables.frames",
    "notebook": "core.tables.notebook",
    "export": "core.tables.summaries",
    # --- data -------------------------------------------------------------------------------
    "data": "data",
    "quarantine": "data.quarantine",
    "reservoir": "data.reservoir",
    "row_order": "data.row_order",
    "lags": "data.lags",
    "fingerprint": "data.fingerprint",
    "sources": "data.sources",
    "json_rows": "data.sources.json_rows",
    "line_blocks": "data.sources.line_blocks",
    "feeds": "data.feeds",
    # --- diagnostics, plots -----------------------------------------------------------------
    "diagnostics": "diagnostics",
    "plots": "plots",
    # --- models -----------------------------------------------------------------------------
    "model": "models.model",
    "priors": "models.priors",
    "intervals": "models.bijectors",
    "scipy_names": "models.scipy_names",
    "own_arrays": "models.own_arrays",
    "program_text": "models.program_text",
    "model_rows": "models.row_likelihood",
    "row_values": "models.row_values",
    "columns_read": "models.columns_read",
    "column_scales": "models.column_scales",
    "relabel": "models.exchangeable",
    "admission": "models.gate",
    "held": "models.held",
    "estimators.resolution": "models.resolution",
    "target": "models.targets",
    "anchor": "models.targets.anchored",
    "estimators.host_likelihood": "models.targets.host",
    "estimators.unbounded": "models.targets.unbounded",
    "interop": "models.numpyro.reading",
    "numpyro_agreement": "models.numpyro.agreement",
    "numpyro_arguments": "models.numpyro.arguments",
    "numpyro_sites": "models.numpyro.sites",
    # --- results ----------------------------------------------------------------------------
    "result": "results.evidence_result",
    "posterior": "results.posterior",
    "prediction": "results.prediction",
    "arviz_export": "results.arviz_export",
    "result_content": "results.saved_content",
    # --- sampling ---------------------------------------------------------------------------
    "kernels": "sampling.kernels",
    "kernels.accept": "sampling.kernels.parts.accept",
    "kernels.blocks": "sampling.kernels.parts.blocks",
    "kernels.criteria": "sampling.kernels.parts.u_turn",
    "kernels.dialogue": "sampling.kernels.parts.dialogue",
    "kernels.hastings": "sampling.kernels.parts.hastings",
    "kernels.ladder": "sampling.kernels.parts.ladder",
    "kernels.leapfrog": "sampling.kernels.parts.leapfrog",
    "kernels.mixture": "sampling.kernels.parts.mixture",
    "kernels.noise": "sampling.kernels.parts.noise",
    "kernels.proposals": "sampling.kernels.parts.proposals",
    "kernels.scale": "sampling.kernels.parts.scale",
    "kernels.schedule": "sampling.kernels.parts.schedule",
    "kernels.trees": "sampling.kernels.nuts_trees",
    "adaptation": "sampling.warmup",
    "chains": "sampling.chain",
    "chain_draws": "sampling.chain_draws",
    "chain_targets": "sampling.chain_targets",
    "sampler": "sampling.sampler",
    "sampling": "sampling.sampling",
    # --- estimators -------------------------------------------------------------------------
    "estimators": "estimators",
    "estimators.anneal": "estimators.annealing.loop",
    "estimators.annealing_step": "estimators.annealing.step",
    "estimators.host": "estimators.annealing.host_step",
    "estimators.cloud": "estimators.annealing.cloud",
    "estimators.path": "estimators.annealing.path",
    "estimators.powers": "estimators.annealing.powers",
    "estimators.reweighting": "estimators.annealing.reweighting",
    "estimators.labels": "estimators.annealing.labels",
    "estimators.memory": "estimators.annealing.memory_needed",
    "estimators.mover": "estimators.annealing.moves.mover",
    "estimators.adaptive": "estimators.annealing.moves.adaptive",
    "estimators.moves": "estimators.annealing.moves.kernels",
    "estimators.walks": "estimators.annealing.moves.walks",
    "estimators.bridge": "estimators.bridging.bridge",
    "estimators.crossing": "estimators.bridging.gaussians",
    "estimators.audit": "estimators.second_look.audit",
    "estimators.joining": "estimators.second_look.joining",
    "estimators.second_look": "estimators.second_look.streams",
    "estimators.tempering": "estimators.tempering.tempering",
    "estimators.leading": "estimators.tempering.guiding",
    "estimators.smc": "estimators.tempering.smc",
    "estimators.ais": "estimators.tempering.ais",
    "estimators.thermodynamic": "estimators.tempering.thermodynamic",
    "estimators.prior_sampling": "estimators.tempering.prior_sampling",
    "estimators.sgais": "estimators.sgais.sgais",
    "estimators.sgais_run": "estimators.sgais.run",
    "estimators.sgais_stage": "estimators.sgais.stage",
    "estimators.sgais_preparation": "estimators.sgais.preparation",
    "estimators.anchoring": "estimators.sgais.anchoring",
    "estimators.anchor_state": "estimators.sgais.anchor_state",
    "estimators.anchored_terms": "estimators.sgais.anchored_terms",
    "estimators.bridge_rows": "estimators.sgais.bridge_rows",
    "estimators.published": "estimators.sgais.published",
    "estimators.streamed": "estimators.sgais.streamed",
    "estimators.ibis": "estimators.ibis.ibis",
    "estimators.ibis_run": "estimators.ibis.run",
    "estimators.look_ahead": "estimators.ibis.look_ahead",
    "estimators.store": "estimators.ibis.row_store",
    "estimators.bidirectional": "estimators.bidirectional.bidirectional",
    "estimators.bounds": "estimators.bidirectional.bounds",
    "estimators.frozen": "estimators.bidirectional.frozen",
    "integration": "estimators.integration.integration",
    "drawables": "estimators.integration.domains",
    "maximization": "estimators.maximization.maximization",
    "climbing": "estimators.maximization.simulated_annealing",
    # --- weighing ---------------------------------------------------------------------------
    "weighing": "weighing.weighing",
    "one_round": "weighing.one_round",
    "rounds": "weighing.rounds",
    "session": "weighing.session",
    "competitor": "weighing.competitor",
    "common_rows": "weighing.common_rows",
    "comparison": "weighing.comparison",
    "comparing": "weighing.comparing",
    "model_probabilities": "weighing.model_probabilities",
    "averaging": "weighing.averaging",
    "online": "weighing.online",
    "saving": "weighing.saving",
    "run_content": "weighing.run_content",
    "changes": "weighing.changes.settings",
    "detection": "weighing.changes.detection",
    "permutation": "weighing.changes.permutation",
    "segments": "weighing.changes.segments",
    "watched": "weighing.changes.watched_run",
    "online_comparison": "weighing.online_comparison.online_comparison",
    "entrants": "weighing.online_comparison.entrants",
    "contest": "weighing.online_comparison.contest",
    "watched_contest": "weighing.online_comparison.watched_contest",
    "catching_up": "weighing.online_comparison.catching_up",
    "comparison_state": "weighing.online_comparison.checkpoint",
    "comparison_update": "weighing.online_comparison.update",
    "history": "weighing.online_comparison.history",
    # --- checking ---------------------------------------------------------------------------
    "criticism": "checking.cross_validation",
    "predictive": "checking.predictive",
    "sensitivity": "checking.sensitivity",
    "calibration": "checking.calibration",
    "pointwise": "checking.pointwise",
    "model_check": "checking.model_check",
    "gradient_check": "checking.model_check.gradients",
    # --- monitoring -------------------------------------------------------------------------
    "watching": "monitoring.watching",
    "event_log": "monitoring.event_log",
    "store": "monitoring.checkpoint_store",
    "run_lock": "monitoring.run_lock",
    "live": "monitoring.terminal",
    "reporting": "monitoring.report",
    # --- zoo, adapters, cli -----------------------------------------------------------------
    "zoo": "zoo",
    "adapters": "adapters",
    "cli": "cli",
    "commands": "cli.commands",
    "tables": "cli.tables",
    "views": "cli.views",
    "named_models": "cli.named_models",
    "scaling": "cli.scaling",
    "demo": "cli.demo",
}

# Docstrings for ``__init__.py`` of the packages that have none yet.
ROOMS: dict[str, str] = {
    "core": "What every other room stands on: errors, status, types, programs, files, progress.",
    "core.progress": "How far a run has come, as bars or as sparse lines.",
    "core.tables": "Tables and summaries of results: as text, as data frames, in a notebook.",
    "models": "The model, its priors, its densities (``targets``), and the gate for its rows.",
    "models.numpyro": "Models that are written as NumPyro functions.",
    "results": "What a user gets back: evidence, posterior, predictions.",
    "sampling": "Markov chains: kernels, warm-up, and ``wb.sample``.",
    "sampling.kernels.parts": "Pieces that several kernels share.",
    "estimators.annealing": "The one annealing loop: particles along a path of densities.",
    "estimators.annealing.moves": "How the annealing loop moves its particles.",
    "estimators.bridging": "Bridge sampling between particles and Gaussians.",
    "estimators.second_look": "A second look at a finished path: modes that it missed.",
    "estimators.tempering": "Methods that temper the likelihood of all the data.",
    "estimators.sgais": "Stochastic gradient annealed importance sampling, chunk by chunk.",
    "estimators.ibis": "Iterated batch importance sampling, row by row.",
    "estimators.bidirectional": "Bounds of the log evidence from both ends of a path.",
    "estimators.integration": "Integrals of any function.",
    "estimators.maximization": "The highest point of a posterior or a likelihood.",
    "weighing": "The evidence of one model, the comparison of several, and both online.",
    "weighing.changes": "Changes of a stream: found by a test, followed by segments.",
    "weighing.online_comparison": "Several models on one stream, compared chunk by chunk.",
    "checking": "Is the model any good, and is the sampler right? Checks of both.",
    "monitoring": "A run that is watched: events, checkpoints, a display and a report.",
}

# These re-export names on purpose: users access them as ``wb.zoo``, ``wb.adapters``, ..., and the
# command of an older installation is ``weighbridge.cli:main``.
PUBLIC_ROOMS = ("zoo", "adapters", "diagnostics", "cli")

CONTRACTS = """\
[tool.importlinter]
root_package = "weighbridge"
exclude_type_checking_imports = true

[[tool.importlinter.contracts]]
name = "Imports point down; rooms on one line do not know each other"
type = "layers"
containers = ["weighbridge"]
exhaustive = true
layers = [
    "cli",
    "zoo | monitoring | adapters",
    "weighing | checking",
    "estimators",
    "sampling",
    "results",
    "models",
    "plots",
    "diagnostics",
    "data",
    "core",
]

[[tool.importlinter.contracts]]
name = "No circles within a room"
type = "acyclic_siblings"
ancestors = ["weighbridge"]
"""

LAYERS_TEXT = """\
## Rooms

The package root holds the list of public names (`__init__.pyi`) and no code; every module lives in
a room. Imports point one way, from the rooms above to those below. The contracts of import-linter
in `pyproject.toml` say which is above which (`lint-imports` checks it): that list is the picture.
A room's `__init__.py` holds its docstring alone, but for `zoo`, `adapters` and `diagnostics`, which
users reach as `wb.zoo` and so on, and `cli`, whose `main` is the command.
"""
