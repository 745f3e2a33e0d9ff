"""What a student sees behind the link: one page that loads nothing, for a phone as for a desk.

Goes into the function's archive beside `my_function.py`, and needs nothing but Python.
"""

from __future__ import annotations

import html
import json
import secrets
import urllib.parse
from typing import Any

STYLE = """:root{color-scheme:light dark}html{background:Canvas;color:CanvasText}
body{font:17px/1.5 system-ui,sans-serif;margin:2rem auto;
max-width:34rem;padding:0 1rem}h1{font-size:1.3rem}table{border-collapse:collapse;width:100%}
td,th{padding:.35rem .5rem .35rem 0;border-bottom:1px solid #8884;vertical-align:top}
th{opacity:.75;white-space:nowrap;font-weight:inherit;text-align:left}form{display:inline}
button,a.b{font:inherit;padding:.5rem 1rem;margin:.8rem .5rem .3rem 0;border-radius:.4rem;
border:1px solid #8888;cursor:pointer;display:inline-block;color:inherit;text-decoration:none;
background:#8882}button.go{background:#0a6b4b;color:#fff;border-color:#0a6b4b}
.say{padding:.7rem 1rem;border-left:4px solid #0a6b4b;background:#8881}.bad{border-color:#c33}
code{font-size:.9em;overflow-wrap:anywhere}meter{width:100%;height:1rem}"""


def page(c: dict[str, Any], q: dict[str, str], a: dict[str, Any]) -> tuple[str, str]:
    """Return the answer as a page, and the policy that says what the page may load: nothing."""
    e, f, nonce = html.escape, a["facts"], secrets.token_urlsafe(12)
    out = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{e(c['name'])}</title>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        f"<style>{STYLE}</style><main>"
        f"<h1>{e(c['name'])}: {e(q.get('s', '') if f else 'your machine')}</h1>"
    ]
    if a["text"]:
        out.append(
            f"<p class='say{' bad' if a['status'] >= 400 else ''}' role=status>{e(a['text'])}</p>"
        )

    def button(do: str, words: str, look: str = "") -> str:
        return (
            f"<form method=post id={do}><input type=hidden name=do value={do}>"
            f"<input type=hidden name=t value='{e(a['ticket'])}'>"
            f"<button class='{look}'>{words}</button></form>"
        )

    if f:
        rows = [
            ("state", f["state"]),
            ("address", f["address"] or "none while it is stopped"),
            ("log in", f"ssh {f['alias']}"),
            (
                "used",
                f"${f['used_usd']:.2f} of ${f['cap_usd']:.2f} ({f['hours']:.1f} hours;"
                f" {f['hours_left']:.1f} left at ${f['usd_hour']:.2f})",
            ),
            ("stops", f"every night at {f['stops_nightly']}, and when it idles"),
            ("deleted", f"on {f['ends']}, disks too"),
        ]
        if f["host_key"]:
            rows.append(("its key", f["host_key"]))
        if f["shared_with"]:
            rows.append(("shared with", ", ".join(f["shared_with"])))
        if f["asked"]:
            rows.append(("you asked for more", f["asked"][:16].replace("T", " ")))
        out.append(
            f"<meter min=0 max={f['cap_usd']} high={f['cap_usd'] * 0.8} "
            f"value={f['used_usd']} aria-label='used of the cap'></meter><table>"
        )
        out += [
            f"<tr><th scope=row>{e(k)}<td>{e(v) if k != 'its key' else f'<code>{e(v)}</code>'}"
            for k, v in rows
        ]
        out.append("</table>")
        if f["state"] in ("stopped", "stopping"):
            out.append(button("start", "Start", "go"))
        elif not f["shared_with"] and f["user"] == "ubuntu":
            out.append(button("stop", "Stop"))
        out.append(button("extend", "Ask for more"))
        out.append(
            f"<a class=b href='?{e(urllib.parse.urlencode(q))}'>Look again</a>"
            f"<a class=b href='?{e(urllib.parse.urlencode({**q, 'get': 'my.py'}))}'"
            " download=my.py>my.py for your terminal</a>"
        )
    elif a["ticket"] and a["retry"]:
        out.append(button(a["do"] or "start", "Ask again now", "go"))
    if a["retry"] and a["ticket"] and a["do"]:
        out.append(
            f"<script nonce={nonce}>setTimeout(()=>document.getElementById("
            f"{json.dumps(a['do'])})?.submit(),{int(a['retry'] * 1000)})</script>"
        )
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'"
    return "".join(out) + "</main>", f"{policy}; form-action 'self'; base-uri 'none'"
