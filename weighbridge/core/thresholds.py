"""The numbers beyond which a result is flagged or a warning is given, all of them in one place.

Two numbers that mean different things have different names, also where they are equal.
"""

# --- Flags of an evidence (core.status.Status) ----------------------------------------------

# ISLANDS_DISAGREE: spread of log Z over islands (nats) beyond which their mean is little but their
# maximum. In a stream the spread grows slowly, and islands are evened out on the way: only beyond a
# larger one do they sit in different modes.
MAX_TEMPERED_SPREAD = 3.0
MAX_STREAMED_SPREAD = 4.0
# LOW_ESS: effective particles of an island below which its estimate hangs on one of them, at the
# end of a path that resamples, and in a stream.
MIN_TEMPERED_PARTICLES = 2.0
MIN_STREAMED_PARTICLES = 1.5
# LOW_ACCEPTANCE: median acceptance of the moves; random walks accept less by nature.
MIN_MOVE_ACCEPTANCE = 0.2
MIN_WALK_ACCEPTANCE = 0.05
# TOO_FEW_MOVES: correlation with the start that moves may leave where there are more parameters
# than particles.
MAX_MOVE_MEMORY = 0.25
# HEATED: a heating bias (nats) below this is no reason for a flag: it is in the error bar.
MAX_HEATING_BIAS = 1.0
# NOISY: batch noise that may have moved log Z by this much (nats), and more than its error.
MAX_NOISE_BIAS = 0.5
# ROUNDED: rounding (nats) from which on it matters; below, it is in the error and nothing else.
MAX_ROUNDING = 0.01
# DRIFTING: particles that do not drift are said to with this probability, if by more than the
# error.
DRIFT_FALSE_ALARM = 1e-3
# PATH_LOST: a path and a bridge agree within this many errors of both; a path's error is a
# Student-t of 15 degrees of freedom.
MAX_BRIDGE_ERRORS = 4.0
# BRIDGE_SHORT: above this shape of the tail of its weights, a bridge's error falls more slowly than
# it says.
MAX_BRIDGE_PARETO_K = 0.5
# MASS_MISSED: a mode was missed where its mass is above the path's there by this many errors of
# both, and where it adds this much to the log evidence (nats).
MIN_MISSED_ERRORS = 5.0
MIN_MISSED_GAIN = 0.1
# Bounds of both directions: nats by which they cross with a probability under 2 exp(-8), in any
# model.
MAX_BOUNDS_CROSSING = 16.0

# --- Warnings about the draws of chains ------------------------------------------------------

# What Vehtari et al. (2021) ask of chains before their draws are used.
MAX_RHAT = 1.01
MIN_ESS_PER_CHAIN = 100
# Betancourt (2016): below this E-BFMI the momentum draws do not reach all energies.
MIN_ENERGY_FRACTION = 0.3
# Mean acceptance of chains; below, moves were mostly rejected.
MIN_CHAIN_ACCEPTANCE = 0.1

# --- Warnings of checks and integrals --------------------------------------------------------

# Vehtari et al. (2024): beyond it the importance weights of leave-one-out are not to be trusted.
MAX_LOO_PARETO_K = 0.7
# Above this shape of their tail the terms of an integral have no mean that can be trusted.
MAX_TERM_PARETO_K = 0.7
# Vehtari, Gelman & Gabry (2017): beyond this variance of a row's log-likelihood WAIC is not.
MAX_WAIC_VARIANCE = 0.4
# Kallioinen et al. (2024): power-scaling sensitivity of a posterior to its prior or likelihood.
MIN_SENSITIVITY = 0.05
# Probability of a statistic, in either tail, below which the model does not produce such data.
MIN_TAIL_PROBABILITY = 0.025
# Calibration: correlation of a draw with the next one that is worth a remark.
MAX_DRAW_CORRELATION = 0.2
