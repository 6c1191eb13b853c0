"""``make bench``: one command after the other, of those that take minutes."""

import subprocess
import sys

MODULES = (
    "benchmarks.sgais.published",
    "benchmarks.speed.blocks",
    "benchmarks.speed.compilation",
    "benchmarks.nuts",
)

if __name__ == "__main__":
    for module in MODULES:  # a process for each: compile times are those of a fresh one
        subprocess.run([sys.executable, "-m", module], check=True)
