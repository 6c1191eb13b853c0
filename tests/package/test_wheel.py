"""What is installed is all there: every public name is imported from a built wheel."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
LOOK = """
import pathlib, sys
import weighbridge as wb
assert pathlib.Path(wb.__file__).is_relative_to(sys.argv[1]), wb.__file__
for name in wb.__all__:
    getattr(wb, name)
print(len(wb.__all__))
"""


def test_every_public_name_loads_from_a_wheel(tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path / "wheel", ROOT], check=True
    )
    (wheel,) = (tmp_path / "wheel").glob("weighbridge-*.whl")
    installed = tmp_path / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--target", installed, wheel], check=True)
    found = subprocess.run(
        [sys.executable, "-c", LOOK, installed],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(found.stdout) > 100
    assert (installed / "weighbridge" / "py.typed").exists()
