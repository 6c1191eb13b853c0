"""All thresholds at which a result is flagged or a warning is given.

Two thresholds with different meanings have different names, even if they are equal.
"""

# --- Flags of an evidence (core.status.Status) ----------------------------------------------

# ISLANDS_DISAGREE: spread of log Z over islands (nats) above which the mean of Z is dominated by
# its maximum. In a stream the spread grows slowly, and resampling across islands reduces it, so
# only a larger spread means that the islands are in different modes.
MAX_TEMPERED_SPREAD = 3.0
MAX_STREAMED_SPREAD = 4.0
# LOW_ESS: effective particles of an island below which its estimate depends on a single particle:
# at the end of a path with resampling, and in a stream.
MIN_TEMPERED_PARTICLES = 2.0
MIN_STREAMED_PARTICLES = 1.5
# LOW_ACCEPTANCE: median acceptance of the moves; random walks have a lower acceptance.
MIN_MOVE_ACCEPTANCE = 0.2
MIN_WALK_ACCEPTANCE = 0.05
# TOO_FEW_MOVES: correlation with the start that the moves may leave if there are more parameters
# than particles. With 0.4 and less the stated error covers what it costs.
MAX_MOVE_MEMORY = 0.5
# HEATED: a heating bias (nats) below this is not flagged, because the error includes it.
MAX_HEATING_BIAS = 1.0
# NOISY: flagged if batch noise may have changed log Z by this much (nats) and by more than its
# error.
MAX_NOISE_BIAS = 0.5
# NOISY too: variance of the log density over mini-batches above which they are of no use.
MAX_BATCH_NOISE = 1.0
# ROUNDED: rounding errors (nats) above this are flagged; smaller ones are only added to the error.
MAX_ROUNDING = 0.01
# DRIFTING: probability of a flag if particles do not drift; a drift within the error is not
# flagged.
DRIFT_FALSE_ALARM = 1e-3
# PATH_LOST: path and bridge agree if they differ by at most this many combined errors; the path's
# error has a Student-t distribution with 15 degrees of freedom.
MAX_BRIDGE_ERRORS = 4.0
# A stated error (nats) above which SGAIS looks for the mode, too.
MAX_UNDOUBTED_ERROR = 0.5
# BRIDGE_SHORT: if the Pareto shape of its weights is above this, a bridge's error decreases more
# slowly than its formula assumes.
MAX_BRIDGE_PARETO_K = 0.5
# HEAVY_WEIGHTS: Pareto shape of importance weights above which their mean is unreliable: Vehtari et
# al. (2024). The error of the shape is added to it.
MAX_PROPOSAL_PARETO_K = 0.7
# CHAINS_DISAGREE: R-hat of posterior draws above which the error of a bridge is not believed.
# The stricter MAX_RHAT below is exceeded by chance where chains are short or parameters many.
# Chains of few effective draws exceed this one by chance too, which is allowed for.
MAX_BRIDGE_RHAT = 1.1
# FEW_EFFECTIVE_DRAWS: with fewer effective draws the error of a bridge is itself unknown.
MIN_BRIDGE_DRAWS = 50
# LITTLE_OVERLAP: Pareto shape of the terms of a bridge above which a few of them decide, if fewer
# than this fraction of them is effective: else their tail does not matter.
MAX_BRIDGE_TERM_PARETO_K, MIN_BRIDGE_EVENNESS = 0.7, 0.5
# DRAWS_DO_NOT_FIT: two bridges with other weights of the two samples, from the same draws, differ
# by this many errors of their difference, and by this many errors of the answer.
MAX_BRIDGE_SHIFT, MIN_BRIDGE_SHIFT = 5.0, 2.0
# METHODS_DISAGREE: two methods differ by more than the first number of combined errors, or by more
# than the second and by this much (nats). Differences of less than the last number are rounding.
MAX_METHOD_ERRORS, MIN_METHOD_ERRORS, MIN_METHOD_DIFFERENCE = 4.0, 3.0, 0.5
SAME_METHOD_DIFFERENCE = 1e-3
# METHODS_DISAGREE too: probability with which a path's bound (000 eq. 3.10) must hold to count.
PATH_BOUND_PROBABILITY = 0.98
# method="auto" goes on to another method where an error is larger than this (nats), as for a grave
# flag.
MAX_CHOSEN_ERROR = 1.0
# RARELY_VISITED: with fewer visits from elsewhere to a model, in a chain over several models, the
# error of its Bayes factor is itself hardly known.
MIN_MODEL_ENTRIES = 50
# LOW_ESS of importance sampling: effective draws of all islands together.
MIN_PROPOSAL_DRAWS = 100
# MASS_MISSED: a mode was missed if its mass exceeds the path's mass there by this many combined
# errors, and if it adds this much to the log evidence (nats).
MIN_MISSED_ERRORS = 5.0
MIN_MISSED_GAIN = 0.1
# LARGE_ERROR, HUGE_ERROR: stated errors (nats) from which on models can hardly be compared, and
# above which nothing is known.
MIN_LARGE_ERROR, MAX_USEFUL_ERROR = 2.0, 10.0
# RANKS_NOT_UNIFORM: nested sampling is flagged if the insertion test, over all points or in its
# worst window, has a smaller p-value; RANKS_FAR_FROM_UNIFORM below the second number, which chance
# does not reach.
MIN_INSERTION_P_VALUE, MIN_CHANCE_P_VALUE = 0.005, 1e-6
# The error of nested sampling is raised to the spread of its runs if the p-value of this spread is
# smaller; ISLANDS_DISAGREE below a tenth of it.
MIN_SPREAD_P_VALUE = 0.01
# WALKERS_REMEMBER: mean rank correlation between the likelihoods at the starts and the ends of the
# walkers of nested sampling; and the least number of slice moves beyond one for each coordinate.
MAX_NESTED_MEMORY = 0.25
MIN_NESTED_EXTRA_MOVES = 1
# Not if this share of the walkers jumped: a jump forgets the position at once.
MIN_NESTED_JUMPS = 0.5
# FEW_LIVE_POINTS: nested sampling of more parameters than this needs this many live points for
# each of them.
MANY_NESTED_PARAMETERS, MIN_POINTS_FOR_EACH = 10, 10
# WALKERS_STUCK: share of the walkers of nested sampling that did not move at all.
MAX_NESTED_STUCK = 0.01
# LOW_ACCEPTANCE: share of the moves of nested sampling that changed the position.
MIN_NESTED_ACCEPTANCE = {
    "slice": 0.5,
    "random_walk": 0.05,
    "galilean": 0.2,
    "sghmc": 0.2,
    "prior": 0.0,
}
# CHECK_FAILED: importance sampling around the modes says nothing if the Pareto shape of its weights
# is above this, or with fewer effective draws.
MAX_CHECK_PARETO_K, MIN_CHECK_DRAWS = 0.7, 50.0
# NOT_GAUSSIAN: difference (nats) between Laplace's method and its check; the error includes it.
MAX_LAPLACE_DIFFERENCE = 1.0
# CHECK_FAILED too: then the next term of Laplace's expansion is the error, if it is at most this
# (nats) for each parameter; with a larger one the expansion need not converge.
MAX_NEXT_ORDER = 0.1
# MODES_UNSEEN: share of the climbs that were the only one to find their mode.
MAX_UNSEEN_MODES = 0.03
# Bounds from both directions: for any model, they cross by this much (nats) with a probability
# below 2 exp(-8).
MAX_BOUNDS_CROSSING = 16.0

# --- Warnings about the draws of chains ------------------------------------------------------

# Requirements of Vehtari et al. (2021) for chains before their draws are used.
MAX_RHAT = 1.01
MIN_ESS_PER_CHAIN = 100
# Betancourt (2016): below this E-BFMI the momentum draws do not reach all energies.
MIN_ENERGY_FRACTION = 0.3
# Mean acceptance of chains below which most moves were rejected.
MIN_CHAIN_ACCEPTANCE = 0.1

# --- Warnings of checks and integrals --------------------------------------------------------

# Vehtari et al. (2024): above this the importance weights of leave-one-out are unreliable.
MAX_LOO_PARETO_K = 0.7
# Above this Pareto shape the mean of the terms of an integral is unreliable.
MAX_TERM_PARETO_K = 0.7
# Vehtari, Gelman & Gabry (2017): above this variance of a row's log-likelihood WAIC is unreliable.
MAX_WAIC_VARIANCE = 0.4
# Kallioinen et al. (2024): power-scaling sensitivity of a posterior to its prior or likelihood.
MIN_SENSITIVITY = 0.05
# Tail probability of a statistic, on either side, below which the model does not fit the data.
MIN_TAIL_PROBABILITY = 0.025
# Calibration: correlation between successive draws above which a note is added.
MAX_DRAW_CORRELATION = 0.2
# Calibration: ranks with a smaller p-value, after Bonferroni's correction, are not uniform.
MIN_RANK_P_VALUE = 0.01
# Sivula, Magnusson & Vehtari (2020): a smaller difference of elpd does not favour a model.
MIN_ELPD_DIFFERENCE = 4.0
