"""Weighted particles and islands, handed on from where they are."""

from __future__ import annotations

from weighbridge.islands import LARGEST_ROUNDING as LARGEST_ROUNDING
from weighbridge.islands import ROUNDED_SHARE as ROUNDED_SHARE
from weighbridge.islands import ROUNDING_MATTERS as ROUNDING_MATTERS
from weighbridge.islands import Combined as Combined
from weighbridge.islands import combine_islands as combine_islands
from weighbridge.islands import combine_logs as combine_logs
from weighbridge.islands import rounding_error as rounding_error
from weighbridge.resampling import FEW as FEW
from weighbridge.resampling import RESAMPLING as RESAMPLING
from weighbridge.resampling import ROUNDING as ROUNDING
from weighbridge.resampling import effective_sample_size as effective_sample_size
from weighbridge.resampling import is_same as is_same
from weighbridge.resampling import log_mean_exp as log_mean_exp
from weighbridge.resampling import multinomial as multinomial
from weighbridge.resampling import relative_weights as relative_weights
from weighbridge.resampling import require_resampling as require_resampling
from weighbridge.resampling import residual as residual
from weighbridge.resampling import stratified as stratified
from weighbridge.resampling import systematic as systematic
