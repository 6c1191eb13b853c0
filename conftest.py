"""What all tests share: examples write into a folder of their own, programs are not hoarded."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def _programs_do_not_pile_up():
    """Let compiled programs go after each file: thousands of them in one process crash XLA."""
    yield
    jax.clear_caches()


@pytest.fixture(autouse=True)
def _examples_write_elsewhere(request, tmp_path, monkeypatch):
    if isinstance(request.node, pytest.DoctestItem):
        monkeypatch.chdir(tmp_path)
