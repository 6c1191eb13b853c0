"""Examples in documentation may write files: they do so in a folder of their own."""

import pytest


@pytest.fixture(autouse=True)
def _examples_write_elsewhere(request, tmp_path, monkeypatch):
    if isinstance(request.node, pytest.DoctestItem):
        monkeypatch.chdir(tmp_path)
