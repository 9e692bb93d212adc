"""The style sheet of pages: colours from the palette, light and dark, no script.

In: the themes, and the glyphs that a page carries. Out: the only style of a page, whose hash stands in its
content policy.
"""

from __future__ import annotations

import base64

from workbench.report.palette import DARK, LIGHT, Theme

_VARIABLES = ("page", "ink", "muted", "grid", "firing", "good_row", "history", "current")


def _colours(theme: Theme) -> str:
    return "".join(f"--{name.replace('_', '-')}:{getattr(theme, name)};" for name in _VARIABLES)


# Dark when the system wants it, unless the reader picked light; dark when the reader picked it. Paper is white.
_DARK_RULES = f"color-scheme:dark;{_colours(DARK)}"


def _dark(selector: str) -> str:
    return (
        f"{selector}{{{_DARK_RULES}}}\n"
        f"{selector} figure .on-light{{display:none}}\n"
        f"{selector} figure .on-dark{{display:block}}\n"
    )


PAGE_STYLE = f"""
:root{{color-scheme:light;{_colours(LIGHT)}}}
@media screen and (prefers-color-scheme:dark){{
{_dark(":root:not(:has(#theme-light:checked))")}}}
@media screen{{
{_dark(":root:has(#theme-dark:checked)")}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--page);color:var(--ink);
  font:15px/1.5 "carried glyphs",system-ui,-apple-system,"Segoe UI","Noto Sans","Noto Sans CJK SC","PingFang SC",
  "Microsoft YaHei","Hiragino Sans","Yu Gothic","Apple SD Gothic Neo","Malgun Gothic",sans-serif}}
main{{max-width:1090px;margin:0 auto;padding:22px 24px 64px}}
h1{{font-size:25px;line-height:1.25;margin:4px 0 8px;overflow-wrap:anywhere}}
h2{{font-size:18px;margin:38px 0 8px}}
h3{{font-size:15px;margin:20px 0 4px}}
p{{margin:6px 0;overflow-wrap:anywhere}}
ul{{margin:6px 0;padding-left:22px}}
li{{margin:4px 0;overflow-wrap:anywhere}}
ul.plain{{list-style:none;padding-left:0}}
a{{color:var(--history)}}
.lead{{font-size:17px}}
.muted{{color:var(--muted)}}
.small,.hash{{font-size:13px}}
.remark{{border-left:3px solid var(--firing);padding-left:10px}}
.action,.firing{{color:var(--firing)}}
.unknown{{color:var(--muted);cursor:help}}
.themes{{float:right;font-size:12px;color:var(--muted);margin:0 0 8px 24px}}
.themes input{{margin:0 3px 0 9px;vertical-align:-2px;accent-color:var(--history)}}
.wide{{overflow-x:auto;margin:12px 0}}
table{{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}}
th,td{{text-align:left;vertical-align:baseline;padding:7px 10px;border-bottom:1px solid var(--grid);font-weight:400}}
thead th{{color:var(--muted);font-weight:600;font-size:13px;vertical-align:bottom}}
th[scope=row]{{min-width:11em;overflow-wrap:anywhere}}
.number{{text-align:right;white-space:nowrap}}
thead .number{{white-space:normal}}
thead .run{{max-width:11em;overflow-wrap:break-word}}
thead th[title]{{cursor:help}}
tr.recommended{{background:var(--good-row)}}
tr.recommended .name{{font-weight:600}}
tr.overflow td:nth-child(2){{color:var(--firing)}}
.difference{{color:var(--muted);margin-left:6px}}
.tag{{display:inline-block;font-size:12px;line-height:1;color:var(--muted);border:1px solid var(--current);
  border-radius:10px;padding:3px 8px;margin-left:8px;white-space:nowrap}}
figure{{margin:14px 0 26px}}
figure img{{max-width:100%;height:auto}}
figure .on-dark{{display:none}}
details{{margin:6px 0}}
details>summary{{cursor:pointer}}
table.calls{{font-size:13px}}
table.calls th,table.calls td{{padding:3px 8px}}
table.runs td{{overflow-wrap:anywhere}}
table.runs td:first-child,table.runs td:nth-child(2){{min-width:13em}}
table.causes th,table.causes td{{padding:6px 6px}}
@media (max-width:700px){{main{{padding:14px 12px 40px}}h1{{font-size:21px}}th,td{{padding:6px}}.themes{{float:none}}}}
@media print{{.themes{{display:none}}figure,tr{{break-inside:avoid}}}}
"""


def style_with(glyphs: bytes | None) -> str:
    """The style of a page with the glyphs that it carries for readers without a face of their own."""
    return PAGE_STYLE if glyphs is None else PAGE_STYLE + carried_face(glyphs)


def carried_face(glyphs: bytes) -> str:
    """The face of the carried glyphs, which comes first among the families.

    Chromium shows boxes where a face at the end of the list comes too late for a text of Latin and wide characters.
    The range leaves all other text, and the height of lines, to the families behind it.
    """
    address = "data:font/woff;base64," + base64.b64encode(glyphs).decode("ascii")
    return (
        '@font-face{font-family:"carried glyphs";font-display:block;unicode-range:U+1100-10FFFF;'
        f'src:url({address}) format("woff")}}\n'
    )
