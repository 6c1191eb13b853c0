"""A self-contained HTML page: no script, nothing from the network; light, dark or printed."""

from __future__ import annotations

import html
from collections.abc import Sequence

from weighbridge.plots.curves import STYLE as CURVES

# The curves have the colours of plots.canvas, which are lighter on a dark page.
STYLE = """
:root{color-scheme:light dark;--paper:#fff;--panel:#f6f7f9;--ink:#1a1d21;--soft:#5b636e;
--rule:#dfe3e8;--mark:#b3261e;--good:#1b7a3d;--warn:#9a5b00;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#c15c93;--c4:#b87c00;--c5:#3a9ad9;--c6:#1a1d21}
@media (prefers-color-scheme:dark){:root{--paper:#14171b;--panel:#1c2026;--ink:#e6e8eb;
--soft:#9aa3af;--rule:#323942;--mark:#ff8a80;--good:#6fd08f;--warn:#f0b455;
--c0:#56b4e9;--c1:#ff8c42;--c2:#2fcf9f;--c3:#e79ac4;--c4:#f0c04a;--c5:#8ab4ff;--c6:#f2f3f5}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);line-height:1.5;
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
main{max-width:60rem;margin:0 auto;padding:1.6rem 1.2rem 3rem}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .2rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.2rem 0 .5rem}
h3{font-size:.95rem;margin:1.4rem 0 .2rem}
p{margin:.4rem 0}.soft{color:var(--soft);font-size:.875rem}
.state{display:inline-block;padding:.05rem .6rem;border-radius:1rem;font-size:.85rem;
font-weight:600;border:1px solid currentColor}
.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--mark)}
.verdict{background:var(--panel);border-left:4px solid var(--c0);border-radius:4px;
padding:.8rem 1rem;margin:1.2rem 0;overflow-wrap:anywhere}
.verdict p:first-child{font-size:1.15rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1.2rem;margin:1rem 0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
.wide{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th{font-weight:600;color:var(--soft);text-align:left;vertical-align:bottom;font-size:.8rem}
th,td{padding:.32rem .7rem .32rem 0;border-bottom:1px solid var(--rule);vertical-align:top}
td:first-child{overflow-wrap:anywhere;min-width:6rem}
.number{text-align:right;white-space:nowrap}
figure{margin:1rem 0;padding-bottom:.6rem;break-inside:avoid}
figcaption{font-weight:600;font-size:.95rem;margin-bottom:1.3rem}
figcaption span{display:block;font-weight:400;color:var(--soft);font-size:.85rem}
footer{margin-top:2.5rem;padding-top:.6rem;border-top:1px solid var(--rule)}
@media (max-width:34rem){main{padding:1rem .8rem 2rem}dl{grid-template-columns:1fr;gap:0}
dd{margin-bottom:.4rem}.plot{margin-left:3.1rem!important}h1{font-size:1.3rem}
table{font-size:.82rem}th,td{padding-right:.5rem}}
@media print{:root{--paper:#fff;--panel:#fff;--ink:#000;--soft:#444;--rule:#ccc;--mark:#a00;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#c15c93;--c4:#b87c00;--c5:#3a9ad9;--c6:#000}
body{font-size:11pt;print-color-adjust:exact;-webkit-print-color-adjust:exact}
main{max-width:none;padding:0}h2,h3{break-after:avoid}tr{break-inside:avoid}
.wide{overflow:visible}.plot{height:11rem!important}}
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(title: str, body: str) -> str:
    """The HTML document with this title and body."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}{CURVES}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f'<p class="{kind}">{html.escape(text)}</p>' if kind else f"<p>{html.escape(text)}</p>"


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """A list of names and values; empty values are left out."""
    items = "".join(f"<dt>{html.escape(n)}</dt><dd>{html.escape(v)}</dd>" for n, v in pairs if v)
    return f"<dl>{items}</dl>"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int]) -> str:
    """A table of plain text; columns are aligned right, except those in ``words``.

    >>> table(["model", "rows"], [["<a>", "12"]], words=[0]).count("&lt;a&gt;")
    1
    """

    def cell(tag: str, place: int, text: str) -> str:
        kind = "" if place in words else ' class="number"'
        return f"<{tag}{kind}>{html.escape(text)}</{tag}>"

    head = "".join(cell("th", k, text) for k, text in enumerate(columns))
    body = "".join(
        f"<tr>{''.join(cell('td', k, text) for k, text in enumerate(row))}</tr>\n" for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>'
        "</div>"
    )


def figure(title: str, explanation: str, drawing: str) -> str:
    """A figure with its title and explanation."""
    return (
        f"<figure><figcaption>{html.escape(title)}<span>{html.escape(explanation)}</span>"
        f"</figcaption>{drawing}</figure>"
    )
