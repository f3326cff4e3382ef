"""GET / in a browser without a screen: what it shows is what /metrics says. Without Chromium the page's text is looked at."""
import html
import re
import shutil
import subprocess
import sys

from serving import ALICE, Server, check, run_cases

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def dom(s, *more):
    return subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000", "--dump-dom", *more,
                           "http://127.0.0.1:%d/" % s.port], capture_output=True, text=True, timeout=120, check=True).stdout


def the_page_needs_nothing_from_elsewhere():
    with Server() as s:
        status, headers, data = s.call("GET", "/")
        page = data.decode()
        check(status == 200 and headers["Content-Type"] == "text/html; charset=utf-8")
        with open("src/server/page.html") as f:
            check(page == f.read(), "the file of the tree is what is served")
        check(not re.search(r"""(src|href)\s*=\s*["'](?!data:)|https?://|@import|url\(""", page), "an outside resource")


def the_page_shows_the_metrics():
    if not CHROMIUM:
        print("  no Chromium here")
        return
    with Server() as s:
        for k in range(3):
            s.complete(ALICE + " of" * 20 * k, max_tokens=4, ignore_eos=True)
        s.complete("Down the hole", max_tokens=4)
        s.idle()
        seen = dom(s)
        shown = {html.unescape(m): float(v) for m, v in re.findall(r'data-metric="([^"]*)" data-value="([^"]*)"', seen)}
        check(len(shown) >= 14, shown)
        values = dict(line.rsplit(" ", 1) for line in s.metrics().splitlines() if not line.startswith("#"))
        for name, value in shown.items():
            check(float(values[name]) == value, name, value, values[name])
        check(seen.count('title="gdn-recurrence') == 4, "a bar of stages for each request")
        check("tales-q8_0" in seen and "Nothing runs" in seen)


CASES = [the_page_needs_nothing_from_elsewhere, the_page_shows_the_metrics]
if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1:]))
