"""The way from a public call to its algorithm must not grow unnoticed (``tools/walks.py``)."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "walks.py"
spec = importlib.util.spec_from_file_location("walks_tool", TOOL)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)


@pytest.mark.parametrize(
    ("title", "most_frames", "most_files"),
    [
        ("wb.evidence -> the loop of SMC", 6, 5),
        ("wb.Online.update -> the loop of a chunk", 8, 5),
        ("wb.OnlineComparison.update -> the loop of a chunk", 12, 7),
    ],
)
def test_the_walk_to_an_algorithm_is_short(title, most_frames, most_files, tmp_path):
    frames = tool.walks(tmp_path)[title]()
    assert 0 < len(frames) <= most_frames, frames
    assert len(tool.files_of(frames)) <= most_files, frames
    assert len(tool.around_estimator(frames)) <= 6, frames


@pytest.mark.long
def test_a_csv_row_passes_few_files_on_its_way_to_a_checkpoint(tmp_path):
    found = tool.walks(tmp_path)
    frames = {title: found[title]() for title in tool.ROW_WALKS}
    assert all(frames.values())
    for title, most in zip(tool.ROW_WALKS, (11, 16, 11)):
        assert len(frames[title]) <= most, frames[title]
    passed = [frame for title in tool.ROW_WALKS for frame in frames[title]]
    assert len(tool.around_estimator(passed)) <= 12, tool.around_estimator(passed)
