"""``make bench``: run every benchmark."""

import subprocess
import sys

MODULES = (
    "benchmarks.foundation",
    "benchmarks.blocks",
    "benchmarks.compilation",
    "benchmarks.nuts",
)

if __name__ == "__main__":
    for module in MODULES:  # a process for each: compile times are those of a fresh one
        subprocess.run([sys.executable, "-m", module], check=True)
