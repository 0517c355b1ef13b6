"""Style sheet of the report, from the colors of the figures."""

from softlook.lens.figures.color import DARK, LIGHT
from softlook.lens.figures.color import style as heatmap_style
from softlook.recipes.run_dir.report.plots import FONT, dark_style


def _variables(colors: dict[str, str]) -> str:
    return " ".join(f"--{name}: {color};" for name, color in colors.items())


LAYOUT = f"""
* {{ box-sizing: border-box; }}
body {{ font: 15px/1.55 {FONT}; margin: 0; background: var(--page); color: var(--ink);
  -webkit-text-size-adjust: 100%; }}
main {{ max-width: 72rem; margin: 0 auto; padding: 2.5rem 1.5rem 5rem; }}
h1 {{ font-size: 1.75rem; line-height: 1.2; letter-spacing: -.015em; margin: .25rem 0 .75rem;
  overflow-wrap: anywhere; }}
h2 {{ font-size: 1.15rem; letter-spacing: -.005em; margin: 2.75rem 0 .75rem; }}
h3 {{ font-size: .9rem; font-weight: 600; margin: 0 0 .5rem; }}
h4 {{ font-size: .78rem; font-weight: 600; color: var(--soft); margin: 1.25rem 0 .25rem; }}
p {{ margin: 0 0 .75rem; }}
.note, .soft {{ color: var(--soft); }} .note {{ font-size: .85rem; max-width: 46rem; }}
h2 + .note {{ margin-top: -.4rem; }}
.product {{ color: var(--soft); font-size: .8rem; font-weight: 600; letter-spacing: .06em; text-transform: uppercase; }}
.badges {{ display: flex; flex-wrap: wrap; gap: .4rem; margin-bottom: 1rem; }}
.badge {{ display: inline-flex; align-items: center; gap: .45rem; padding: .12rem .7rem; border: 1px solid var(--edge);
  border-radius: 1rem; background: var(--paper); font-size: .82rem; overflow-wrap: anywhere; }}
.badge i {{ width: .5rem; height: .5rem; border-radius: 50%; background: var(--query); flex: none; }}
.badge i.open {{ background: var(--key); }}
code, pre, .mono {{ font-family: ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; font-size: .82rem; }}
pre {{ margin: 0; padding: .7rem .9rem; border: 1px solid var(--edge); border-radius: .5rem; background: var(--paper);
  white-space: pre-wrap; overflow-wrap: anywhere; }}
""".strip()
COMPONENTS = """
.card, .tile { background: var(--paper); border: 1px solid var(--edge); border-radius: .6rem; min-width: 0; }
.card { padding: 1rem 1.1rem; margin-bottom: 1rem; } .card.figure { padding: .35rem .5rem .25rem; }
.grid { display: grid; gap: 1rem; margin-bottom: 1rem; } .grid .card { margin: 0; }
.of-2 { grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); }
.of-3 { grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); }
.tiles { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); margin: 1.25rem 0; }
.tile { padding: .8rem 1rem .75rem; display: flex; flex-direction: column; }
.tile .label, .tile .detail { color: var(--soft); font-size: .8rem; line-height: 1.35; }
.tile .number { font-size: 1.55rem; line-height: 1.3; font-weight: 650; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums; }
.tile.first { border-color: var(--query); } .tile.first .number { color: var(--query); }
svg.softlook { display: block; width: 100%; height: auto; }
.fit svg.softlook { width: auto; max-width: 100%; margin: 0 auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; }
th { color: var(--soft); font-size: .78rem; font-weight: 600; text-align: left; white-space: nowrap; }
td, th { padding: .4rem .9rem .4rem 0; vertical-align: top; border-bottom: 1px solid var(--edge); }
tr:last-child > td { border-bottom: 0; } td:last-child, th:last-child { padding-right: 0; }
td { overflow-wrap: break-word; } td.name { white-space: nowrap; } .facts td { overflow-wrap: anywhere; }
.num { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.best { font-weight: 650; } tr:has(> td.own) > td { background: var(--tint); }
td.own { padding-left: .5rem; } td.value { overflow-wrap: anywhere; min-width: 8rem; }
td.long { overflow-wrap: anywhere; min-width: 15rem; }
td.bar { min-width: 6rem; background: linear-gradient(to right, var(--tint) var(--share), #0000 0) 0 center / 100% 1.5em
  no-repeat content-box; vertical-align: middle; }
.samples td { min-width: 8.5rem; white-space: pre-wrap; }
.samples.long td { min-width: 19rem; font-size: .82rem; } .samples td.input { color: var(--soft); }
.tokens { line-height: 2; margin: 0; overflow-wrap: anywhere; }
.token { padding: .15rem .3rem; border-radius: .25rem;
  background: color-mix(in srgb, var(--query) calc(.55 * var(--share)), transparent); }
.origin { color: var(--soft); }
details { margin-top: .75rem; } summary { cursor: pointer; color: var(--soft); font-size: .85rem; }
details[open] > summary { margin-bottom: .5rem; }
""".strip()
MEDIA = """
@media (max-width: 40rem) {
  main { padding: 1.5rem 1rem 3rem; } h1 { font-size: 1.4rem; } .tiles { grid-template-columns: 1fr 1fr; }
  .tile .number { font-size: 1.3rem; } .card { padding: .8rem .9rem; } .figure .softlook text { font-size: 16px; }
  .of-3 .figure .softlook text { font-size: 13px; } td.name { white-space: normal; }
  td.mono { overflow-wrap: anywhere; font-size: .75rem; } td.value { min-width: 5.5rem; }
}
@media print {
  :root { --page: #fff; } main { max-width: none; padding: 0; } body { font-size: 12px; }
  h2, h3, h4, .note { break-after: avoid; } .card.figure, .tile, svg, tr { break-inside: avoid; }
  .wide { overflow: visible; } .bar, .token, tr > td { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
""".strip()
STYLE = f"""
:root {{ color-scheme: light dark; --page: #f6f8fa; --tint: #0066a124; {_variables(LIGHT)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ --page: #0e1014; --tint: #6cb8ec3d; {_variables(DARK)} }} }}
{LAYOUT}
{COMPONENTS}
{MEDIA}
{dark_style()}
{heatmap_style()}
""".strip()
