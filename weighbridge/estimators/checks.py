"""Checks of the settings of methods, handed on from where they are."""

from __future__ import annotations

from weighbridge.checks import require_counts as require_counts
from weighbridge.checks import require_fraction as require_fraction
from weighbridge.checks import require_particles as require_particles
