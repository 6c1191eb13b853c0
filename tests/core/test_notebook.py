"""How results show themselves in a notebook."""

import base64
import dataclasses
import re
import struct
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import weighbridge as wb
from tests.helpers.result_examples import DRAWS, EXAMPLES, STATUS, comparison, evidence, posterior
from weighbridge.core.tables.notebook import Shown

SHOWN = {name: thing for name, thing in EXAMPLES.items() if isinstance(thing, Shown)}
EVIL = "<script>alert('&')</script>\"'"


class Reader(HTMLParser):
    """Reads a page: tags that match, its texts, its images."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.texts, self.images = [], [], [], []
        self.attributes = set()
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.handle_startendtag(tag, attributes)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attributes}
        if tag == "img":
            self.images.append(dict(attributes)["src"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_what_shows_itself():
    assert set(SHOWN) == {
        *("Calibration", "Comparison", "Elpd", "ElpdComparison", "Evidence", "ModelReport"),
        *("Posterior", "Prediction", "PredictiveCheck", "Sensitivity", "Summary", "Table"),
        *("Findings", "History", "Integral", "NestedEvidence", "Optimum", "Trace"),
        *("CrossCheck", "EvidenceRatio", "ExactPosterior", "Information", "Reweighted"),
    }


@pytest.mark.parametrize("name", SHOWN)
def test_a_page_needs_nothing_from_elsewhere(name):
    read = Reader(SHOWN[name]._repr_html_())
    assert "table" in read.tags
    assert set(read.tags) <= {
        *("p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "img")
    }
    assert read.attributes <= {"style", "alt", "src"}  # no names that could clash, no handlers
    for source in read.images:
        kind, _, image = source.partition(",")
        assert kind == "data:image/png;base64"
        png = base64.b64decode(image, validate=True)
        assert png.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", png[16:24])
        assert 300 < width < 1200
        assert 100 < height < 2000
        assert len(png) < 80_000


@pytest.mark.parametrize(
    "name",
    [
        *("Calibration", "Comparison", "Evidence", "Posterior", "Prediction", "PredictiveCheck"),
        *("History", "Integral", "Optimum"),
    ],
)
def test_a_figure_where_there_is_one(name):
    assert len(Reader(SHOWN[name]._repr_html_()).images) == 1


def test_reasons_for_caution_are_shown_with_their_remedies():
    for page in (evidence()._repr_html_(), comparison()._repr_html_()):
        told = "".join(Reader(page).texts)
        assert STATUS.meaning in told
        assert STATUS.remedy in told
    assert "A remark." in Reader(posterior()._repr_html_()).texts
    report = wb.ModelReport((wb.Check("rows", False, "they differ", "Sum them."),))
    assert "rows: Sum them." in Reader(report._repr_html_()).texts
    different = dataclasses.replace(evidence(), fingerprint=None, num_observations=3)
    table = wb.compare({"a": evidence(), "b": different}, same_data=False)
    assert table.remarks[0] in Reader(table._repr_html_()).texts


def test_everything_is_escaped():
    samples = {EVIL: DRAWS[0]}
    evil = dataclasses.replace(evidence(), samples=samples, method=EVIL)
    things = [
        evil,
        wb.compare({EVIL: evil, "b": evil}),
        dataclasses.replace(posterior(), samples={EVIL: DRAWS}, remarks=(EVIL,)),
        dataclasses.replace(EXAMPLES["Prediction"], probabilities={EVIL: 1.0}),
        wb.ModelReport((wb.Check(EVIL, False, EVIL, EVIL),)),
        wb.PredictiveCheck({EVIL: 0.0}, {EVIL: DRAWS[0]}, {EVIL: 0.4}),
        wb.Sensitivity({EVIL: 0.1}, {EVIL: 0.2}, -0.5, 0.03, -9.0, 0.1),
        wb.Calibration({EVIL: np.arange(20) % 10}, 9),
        dataclasses.replace(EXAMPLES["Elpd"], method=EVIL, warnings=(EVIL,)),
        wb.Table((EVIL,), {EVIL: (EVIL,)}),
    ]
    for thing in things:
        page = thing._repr_html_()
        assert "<script" not in page
        assert any(EVIL in text for text in Reader(page).texts)


def test_the_table_alone_without_matplotlib(monkeypatch):
    for module in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for thing in SHOWN.values():
        read = Reader(thing._repr_html_())
        assert "table" in read.tags
        assert not read.images
        assert not any("could not be drawn" in text for text in read.texts)


def test_draws_that_cannot_be_drawn_do_not_hide_the_numbers():
    nowhere = dataclasses.replace(evidence(), samples={"mu": np.full(30, np.nan)})
    assert "log evidence" in nowhere._repr_html_()
    empty = dataclasses.replace(evidence(), samples={}, trace=wb.Trace())
    assert "log evidence" in empty._repr_html_()


def test_large_results_have_small_pages():
    draws = np.random.default_rng(0).normal(size=(200, 60))
    wide = dataclasses.replace(evidence(), samples={"w": draws}, log_weights=np.zeros(200))
    told = Reader(wide._repr_html_()).texts
    assert "w[19]" in told
    assert "w[20]" not in told
    assert "40 more entries of the parameters: see summary()" in told
    chains = draws.reshape(2, 100, 60)
    many = Reader(wb.Posterior({"w": chains}, chains, {})._repr_html_()).texts
    assert "40 more entries of the parameters: see summary()" in many
    assert re.search(r"w\[0\]", "".join(many))
    prediction = wb.Prediction(np.zeros((10, 300_000)), 300_000)
    assert len(prediction._repr_html_()) < 10_000


def test_no_windows_no_figures_left_and_the_backend_as_it_was():
    import matplotlib
    from matplotlib import pyplot

    backend = matplotlib.get_backend()  # which is chosen when it is first asked for
    before = dict(matplotlib.rcParams), pyplot.get_fignums()
    for name in ("Comparison", "Evidence", "Posterior", "Prediction"):
        SHOWN[name]._repr_html_()
    assert (dict(matplotlib.rcParams), pyplot.get_fignums()) == before
    assert matplotlib.get_backend() == backend


def test_a_figure_that_fails_says_why_in_its_place(monkeypatch):
    """Every error was dropped: a broken plot looked like a result without a figure."""

    def fail(*_, **__):
        raise ZeroDivisionError("<nowhere>")

    monkeypatch.setattr(wb.Evidence, "plot_posterior", fail)
    read = Reader(evidence()._repr_html_())
    assert "The figure could not be drawn: ZeroDivisionError: <nowhere>" in read.texts
    assert "table" in read.tags
    assert not read.images


def test_a_long_trace_shows_its_ends():
    texts = Reader(wb.Trace(power=np.linspace(0, 1, 500))._repr_html_()).texts
    assert {"1", "5", "...", "496", "500"} <= set(texts)
    assert "6" not in texts
    empty = wb.Trace()._repr_html_() + wb.History()._repr_html_() + wb.Findings()._repr_html_()
    assert "could not be drawn" not in empty


def test_an_integral_not_to_be_trusted_says_so_first():
    assert "do not trust the error" in wb.Integral(1.0, 0.01, 1000, 12.0, 0.9)._repr_html_()
    assert "do not trust" not in EXAMPLES["Integral"]._repr_html_()
