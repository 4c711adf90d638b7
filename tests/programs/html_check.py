"""What the page must show, in a real browser: html_check.py FOLDER, where cli_html.sh has put pages and their traces.

What is expected comes from the traces' JSON, read here a second time; the page is asked only where its panels lie."""
import base64
import hashlib
import html.parser
import json
import os
import re
import sys
import urllib.parse

import html_drive
import html_traces

folder = sys.argv[1]
failed = []


def check(condition, words):
    if not condition:
        failed.append(words)
        print("FAILED:", words)


def read(name):
    with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
        return file.read()


class Tags(html.parser.HTMLParser):
    """All tags of a page, and the text inside script and style."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.inside, self.now = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.now = [tag, dict(attrs).get("type", ""), ""]
            self.inside.append(self.now)

    def handle_data(self, data):
        if self.now:
            self.now[2] += data

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self.now = None


def check_markup(name):
    """The policy allows what stands in the page, by hashes computed here, and nothing else."""
    page = Tags(read(name))
    policy = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    wanted = {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"}
    kinds = [(tag, kind) for tag, kind, _ in page.inside]
    check(sorted(kinds) == [("script", ""), ("script", "application/json"), ("style", "")], f"{name} has {kinds}")
    for tag, kind, text in page.inside:
        if kind == "":
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            wanted[tag + "-src"] = f"'sha256-{digest}'"
    got = dict(part.strip().split(" ", 1) for part in policy[0].split(";")) if len(policy) == 1 else None
    check(got == wanted, f"{name}: policy {policy}, wanted {wanted}")
    for tag, attrs in page.tags:
        bad = [key for key in attrs if key in ("style", "src", "href", "action") or key.startswith("on")]
        check(not bad, f"{name}: <{tag}> has {bad}")
    data = next(text for tag, kind, text in page.inside if kind == "application/json")
    check(not re.search("[<>&\u2028\u2029]", data), f"{name}: the data holds a character that must be escaped")


class Trace:
    """The live ranges of a trace as its file tells them."""

    def __init__(self, name):
        self.file = json.loads(read(name))
        self.events = self.file["events"]
        by_step = {event["step"]: event for event in self.events}
        self.stays = []
        for place in self.file["places"]:
            born = by_step[place["from"]]
            name = born["name"] if place["what"] == "workspace" else place["what"]
            if name.endswith("/grad"):  # of what it is the gradient of
                layer = name.removesuffix("/grad")
            elif born["phase"] in ("forward", "backward", "recompute", "update"):
                layer = born.get("layer", "")
            else:  # fetched back: of the layer that wrote it
                layer = next((e["layer"] for e in self.events if e["name"].startswith(name + "/")), None)
            self.stays.append(dict(place, name=name, layer=layer))
        self.top = max([self.file["arena_bytes"], *(place["offset"] + place["bytes"] for place in self.stays)])

    def count(self, test):
        return sum(1 for stay in self.stays if test(stay["name"]) or test(stay["layer"] or ""))

    def count_events(self, test):
        return sum(1 for event in self.events if test(event["name"]) or test(event.get("layer", "")))


def view(browser):
    return browser.run("({...ckpt.state, box: document.getElementById('plot').getBoundingClientRect().toJSON(), "
                       "left: ckpt.layout.left, right: ckpt.layout.right, map: ckpt.layout.map, "
                       "chart: ckpt.layout.chart, ticks: ckpt.drawn.ticks, axisY: ckpt.layout.axisY})")


def pixel(browser, trace, stay, across=0.5, up=0.5):
    """The middle of a live range on the screen, or another part of it, on the axis of steps."""
    at = view(browser)
    step = stay["from"] + across * (stay["to"] + 1 - stay["from"])
    part = (stay["offset"] + up * stay["bytes"]) / trace.top
    x = at["left"] + (step - at["from"]) / (at["to"] - at["from"]) * (at["right"] - at["left"])
    y = at["map"]["bottom"] - (part - at["low"]) / (at["high"] - at["low"]) * at["map"]["height"]
    return at["box"]["left"] + x, at["box"]["top"] + y


def tooltip(browser):
    """Head and rows of the tooltip, or None."""
    return browser.run("(t => t.hidden ? null : Object.fromEntries([['', t.querySelector('strong').textContent], "
                       "...[...t.querySelectorAll('dt')].map(d => [d.textContent, d.nextSibling.textContent])]))"
                       "(document.getElementById('tip'))")


def check_hover(browser, trace):
    """The largest live ranges, and a few of each kind, at their computed pixels."""
    some = sorted(trace.stays, key=lambda s: -(s["to"] - s["from"] + 1) * s["bytes"])[:8]
    some += [s for s in trace.stays if s["what"] == "workspace" and s["bytes"] > trace.top / 30][:3]
    for stay in some:
        browser.hover(*pixel(browser, trace, stay))
        tip, where = tooltip(browser), f"hover over {stay}"
        if tip is None:
            check(False, f"{where}: no tooltip")
            continue
        check(tip[""] == stay["name"], f"{where}: found {tip['']}")
        check(tip["layer"] == (stay["layer"] or "none"), f"{where}: layer {tip['layer']}")
        check(tip["bytes"].startswith(f"{stay['bytes']:,} ("), f"{where}: bytes {tip['bytes']}")
        check(tip["offset"] == f"{stay['offset']:,}", f"{where}: offset {tip['offset']}")
        check(tip["birth"].startswith(f"step {stay['from']}, "), f"{where}: birth {tip['birth']}")
        last = stay["to"] == trace.events[-1]["step"]
        check(tip["death"] == "not before the end" if last else tip["death"].startswith(f"after step {stay['to']}, "),
              f"{where}: death {tip['death']}")
        check(tip["why"] != "", f"{where}: no reason")
        left, bottom = pixel(browser, trace, stay, 0, 0)
        right, top = pixel(browser, trace, stay, 1, 1)
        if right - left > 8 and bottom - top > 8:
            for x, y in ((left + 2, bottom - 2), (right - 2, top + 2)):
                browser.hover(x, y)
                check((tooltip(browser) or {}).get("") == stay["name"], f"{where}: a corner shows {tooltip(browser)}")


def check_table(browser, trace):
    """The table at the peak has what the places say; a row points at its rectangle."""
    peak = trace.events[trace.file["peak_event"]]["step"]
    alive = sorted((s for s in trace.stays if s["from"] <= peak <= s["to"]), key=lambda s: -s["bytes"])
    rows = browser.run("[...document.querySelectorAll('#alive-rows tr')]"
                       ".map(r => [...r.cells].map(c => c.textContent))")
    check([row[3] for row in rows] == [f"{s['bytes']:,}" for s in alive], "bytes in the table at the peak")
    check(sorted(row[0] for row in rows) == sorted(s["name"] for s in alive), "names in the table at the peak")
    ends = {s["name"]: "end" if s["to"] == trace.events[-1]["step"] else f"{s['to']:,}" for s in alive}
    check({row[0]: row[6] for row in rows} == ends, "deaths in the table at the peak")
    total = sum(s["bytes"] for s in alive)
    check(f"({total:,} B)" in browser.run("document.getElementById('alive-sum').textContent"), "sum of the table")
    row = browser.run("(r => { r.scrollIntoView({block: 'center'}); return r.getBoundingClientRect().toJSON(); })"
                      "(document.querySelectorAll('#alive-rows tr')[1])")
    browser.hover(row["left"] + 20, row["top"] + 8)
    cursor = browser.run("ckpt.state.cursor && ckpt.data.texts[ckpt.ranges.name[ckpt.state.cursor.range]]")
    check(cursor == rows[1][0], f"a row of {rows[1][0]} points at {cursor}")
    check(browser.run("document.querySelectorAll('#alive-rows tr.over').length") == 1, "no row is marked")
    browser.run("document.querySelector('#alive-rows tr').focus()")
    browser.key("ArrowDown")
    browser.key("ArrowDown")
    cursor = browser.run("ckpt.data.texts[ckpt.ranges.name[ckpt.state.cursor.range]]")
    check(cursor == rows[2][0], f"the keys go to the row of {rows[2][0]}, found {cursor}")
    browser.run("document.activeElement.blur()")
    browser.run("document.getElementById('head-name').firstChild.click()")
    names = browser.run("[...document.querySelectorAll('#alive-rows tr')].map(r => r.cells[0].textContent)")
    check(names == sorted(names), "the table sorts by name")
    browser.run("document.getElementById('head-bytes').firstChild.click(); scrollTo(0, 0)")


def colors_at(browser, canvas, places):
    """Of pixels of a canvas, places in the window."""
    return browser.run(f"(c => {{ c.drawImage(document.getElementById('{canvas}'), 0, 0); "
                       "const box = document.getElementById('plot').getBoundingClientRect(); return "
                       f"{json.dumps(places)}.map(([x, y]) => [...c.getImageData(Math.floor(x - box.left), "
                       "Math.floor(y - box.top), 1, 1).data]); })((c => { c.width = c.height = 2000; return "
                       "c.getContext('2d', {willReadFrequently: true}); })(document.createElement('canvas')))")


def check_drawn(browser, trace):
    """Pixels: the stack is as high as the bytes, a search fades the others, the layer's other live ranges are outlined."""
    browser.run("location.hash = '#x=240~262'")
    browser.wait("ckpt.state.from === 240")
    browser.settle()
    at = view(browser)
    levels = browser.run("ckpt.drawn.levels")
    megas = [(float(level["text"].split(" ")[0]) * 1e6, level["y"]) for level in levels if level["text"].endswith(" MB")
             and at["chart"]["top"] + 8 < level["y"] < at["chart"]["bottom"] - 8]
    (low, low_y), (high, high_y) = megas[0], megas[-1]
    panel = browser.run("ckpt.colors.panel")
    for event in trace.events[242:260:4]:
        total = sum(v for k, v in event["bytes"].items() if k != "outside")
        part = (event["step"] + 0.5 - at["from"]) / (at["to"] - at["from"])
        x = at["box"]["left"] + at["left"] + part * (at["right"] - at["left"])
        ys = range(int(at["chart"]["bottom"]) - 3, int(at["chart"]["top"]), -1)
        column = colors_at(browser, "plot", [(x, at["box"]["top"] + y) for y in ys])
        top = next(y for y, rgb in zip(ys, column) if "#%02x%02x%02x" % tuple(rgb[:3]) == panel)
        wanted = low_y + (total - low) / (high - low) * (high_y - low_y)
        # On it lies the line of the other trace.
        check(abs(top - wanted) < 5, f"the stack at step {event['step']} ends at {top}, wanted {wanted}")
    browser.key("0")
    where = lambda name: next(s for s in trace.stays if s["name"] == name)
    some, other = pixel(browser, trace, where("h.5.qkv")), pixel(browser, trace, where("h.0.add2"))
    before = colors_at(browser, "plot", [some, other])
    again = max((s for s in trace.stays if trace.events[s["from"]]["phase"] == "recompute"),
                key=lambda s: (s["to"] - s["from"]) * s["bytes"])
    x, y = pixel(browser, trace, again, 0.5, 0.1)
    hatch = {tuple(rgb) for rgb in colors_at(browser, "plot", [(x + dx, y) for dx in range(12)])}
    check(len(hatch) == 2, f"{again['name']}, recomputed, has the colours {hatch}")
    search(browser, "h.5.qkv")
    after = colors_at(browser, "plot", [some, other])
    check(before[0] == after[0] and before[1] != after[1], f"a search makes {after} of {before}")
    browser.run("document.getElementById('find').value = ''; "
                "document.getElementById('find').dispatchEvent(new Event('input'))")
    browser.settle()
    edge = [pixel(browser, trace, where("h.5.qkv/backward"), 0.5, 0), pixel(browser, trace, where("h.5.qkv"), 0, 0.5)]
    clear = colors_at(browser, "over", edge)
    browser.hover(*some)
    drawn = colors_at(browser, "over", edge)
    check(all(rgb[3] == 0 for rgb in clear) and all(rgb[3] > 0 for rgb in drawn),
          f"outlines of a layer: {clear}, then {drawn}")
    browser.hover(0, 0)


def lane_place(browser, lane, event):
    """The middle of what ran, on the axis of time."""
    at, lanes, names = view(browser), browser.run("ckpt.layout.lanes"), browser.run("ckpt.data.lanes")
    x = at["left"] + (event["start_ns"] + event["end_ns"]) / 2 / at["to"] * (at["right"] - at["left"])
    y = lanes["top"] + (names.index(lane) + 0.5) * lanes["height"] / len(names)
    return at["box"]["left"] + x, at["box"]["top"] + y


def check_highest(browser, trace):
    """What a column of pixels shows of the events in it: the first highest."""
    sums = [sum(v for k, v in event["bytes"].items() if k != "outside") for event in trace.events]
    ranges = [(a, b) for a in range(0, len(sums), 7) for b in range(a, len(sums), 31)]
    got = browser.run(f"{json.dumps(ranges)}.map(([from, to]) => ckpt.highest(from, to))")
    for (a, b), event in zip(ranges, got):
        wanted = max(range(a, b + 1), key=lambda i: sums[i])
        check(event == wanted, f"of events {a} to {b} the highest is {event}, wanted {wanted}")


def check_legend(browser, trace):
    """What is said about a step: the legend's bytes, the other trace, what ran in a lane."""
    at = view(browser)
    wrong = len(trace.events) // 3
    step = trace.events[wrong]["step"]
    x = at["box"]["left"] + at["left"] + (step + 0.5) / at["to"] * (at["right"] - at["left"])
    browser.hover(x, at["box"]["top"] + at["chart"]["bottom"] - 4)
    check(tooltip(browser).get("measured") == "512 B more", f"the other trace: {tooltip(browser)}")
    said = browser.run("[...document.querySelectorAll('#legend li')].map(l => [...l.children].map(c => "
                       "c.textContent))")
    words = next(value for _, name, value in said if name == "activations")
    number, unit = words.split(" ")
    bytes_ = trace.events[wrong]["bytes"]["activations"]
    check(abs(float(number) * {"kB": 1e3, "MB": 1e6}[unit] / bytes_ - 1) < 0.01, f"legend: {words} of {bytes_}")
    browser.run("document.getElementById('axis-time').click()")
    browser.settle()
    again = max((e for e in trace.events if e["phase"] == "recompute"), key=lambda e: e["end_ns"] - e["start_ns"])
    browser.hover(*lane_place(browser, "recompute", again))
    check(tooltip(browser)[""] == f"step {again['step']}: {again['name']}", f"the lane shows {tooltip(browser)['']}")
    browser.run("document.getElementById('axis-steps').click()")
    browser.key("0")
    browser.hover(0, 0)


def check_tip(browser, trace):
    """A tip stands beside the live range that it explains, where the window has room beside it."""
    window = browser.run("({width: innerWidth, height: innerHeight})")
    for stay in sorted(trace.stays, key=lambda s: -(s["to"] + 1 - s["from"]) * s["bytes"])[:12]:
        browser.hover(*pixel(browser, trace, stay))
        tip, rect, box = browser.run(
            "[document.getElementById('tip').getBoundingClientRect().toJSON(), ckpt.rectOf(ckpt.state.cursor.range), "
            "document.getElementById('plot').getBoundingClientRect().toJSON()]")
        left, right = box["left"] + rect["left"], box["left"] + rect["right"]
        top, bottom = box["top"] + rect["top"], box["top"] + rect["bottom"]
        room = max(left, window["width"] - right) > tip["width"] + 16 or max(top, window["height"] - bottom) > \
            tip["height"] + 16
        apart = tip["left"] >= right or tip["right"] <= left or tip["top"] >= bottom or tip["bottom"] <= top
        check(apart or not room, f"{window}: the tip at {tip} covers {stay['name']} at {left}, {top}, {right}, {bottom}")
    browser.hover(0, 0)


def check_box_names(browser):
    """The map names what a picture names (view_map.c): letters of 9 pixels or more, all of the name or a good part."""
    wrong = browser.run("""(() => {
      const context = document.createElement('canvas').getContext('2d'), wanted = [];
      for (let i = 0; i < ckpt.ranges.count; i++) {
        const { left, right, top, bottom } = ckpt.rectOf(i), size = Math.min(11, bottom - top - 1.5);
        context.font = `${size}px "DejaVu Sans", Verdana, system-ui, sans-serif`;
        const name = ckpt.data.texts[ckpt.ranges.name[i]], whole = context.measureText(name).width;
        if (size >= 9 && right - left - 8 >= Math.min(whole, Math.max(44, whole * 2 / 3))) wanted.push(name);
      }
      const drawn = ckpt.drawn.names, same = (a, b) => a.slice(0, 2) === b.slice(0, 2) && a.slice(-2) === b.slice(-2);
      return [wanted.length, drawn.length, drawn.filter((name) => !wanted.some((one) => same(one, name)))];
    })()""")
    check(wrong[0] == wrong[1] > 5 and wrong[2] == [], f"wanted names, drawn names, others: {wrong}")


def check_peak(browser, width):
    """The peak's words stand over its mark, however narrow the page is."""
    peak = browser.run("ckpt.drawn.peak")
    check(abs(peak["x"] - peak["words"]) <= peak["half"], f"{width} wide: the peak is at {peak['x']}, its words {peak}")


def search(browser, words):
    browser.run("document.getElementById('find').value = ''")
    browser.run("document.activeElement.blur()")
    browser.key("/")
    browser.type(words)
    return browser.run("[document.getElementById('find-count').textContent, "
                       "document.getElementById('find').getAttribute('aria-invalid')]")


def check_search(browser, trace):
    cases = [("h.1.", lambda t: "h.1." in t.lower()), ("GRAD", lambda t: "grad" in t.lower()),
             (r"/^h\.[02]\.(qkv|att)$/", lambda t: re.search(r"^h\.[02]\.(qkv|att)$", t)),
             (r"/BACKWARD/i", lambda t: re.search("backward", t, re.I)), ("no such thing", lambda t: False)]
    for words, test in cases:
        stays, steps = trace.count(test), trace.count_events(test)
        many = f"{stays:,} live range{'' if stays == 1 else 's'}, {steps:,} step{'' if steps == 1 else 's'}"
        got = search(browser, words)
        check(got == [many, "false"], f"search {words}: {got}, wanted {many}")
    got = search(browser, "/h.(/")
    check("not a regular expression" in got[0] and got[1] == "true", f"a bad expression gives {got}")
    browser.run("(now => { let late = 0; performance.now = () => now() + (late += 900); })"
                "(performance.now.bind(performance))")
    got = search(browser, "/h/")
    check(got == ["given up after 2 s", "true"], f"an expression that takes long gives {got}")
    browser.run("delete performance.now")
    search(browser, "h.0.qkv")
    browser.key("Enter")
    browser.key("Escape")
    browser.key("n")
    at = browser.run("[ckpt.search.at, ckpt.state.pin.range === ckpt.search.ranges[1]]")
    check(at == [1, True], f"Enter and n go to match {at}")
    browser.key("N", modifiers=8)
    check(browser.run("ckpt.search.at") == 0, "N goes back")
    for _ in range(browser.run("ckpt.search.ranges.length")):
        browser.key("n")
    check(browser.run("ckpt.search.at") == 0, "after the last match comes the first")
    search(browser, " ")
    browser.run("document.getElementById('find').value = ''; "
                "document.getElementById('find').dispatchEvent(new Event('input'))")
    browser.key("Escape")
    browser.key("Escape")


def check_ticks(browser, words):
    """Labels stand where they say, in the picture, and apart."""
    at = view(browser)
    ticks = at["ticks"]
    check(len(ticks) >= 2, f"{words}: {len(ticks)} labels")
    for a, b in zip(ticks, ticks[1:]):
        check(a["right"] < b["left"], f"{words}: {a['text']} and {b['text']} overlap")
    unit = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
    for tick in ticks:
        number, *scale = tick["text"].split(" ")
        value = float(number) * (unit[scale[0]] if scale else 1)
        x = at["left"] + (value - at["from"]) / (at["to"] - at["from"]) * (at["right"] - at["left"])
        check(at["from"] - 1e-6 <= value <= at["to"] * (1 + 1e-9), f"{words}: {tick['text']} is not in the picture")
        check(abs(x - tick["x"]) < 1, f"{words}: {tick['text']} stands at {tick['x']}, wanted {x}")
        check(tick["left"] >= 0 and tick["right"] <= at["box"]["width"], f"{words}: {tick['text']} is cut")


def check_zoom(browser):
    at = view(browser)
    x, y = at["box"]["left"] + 400, at["box"]["top"] + at["map"]["top"] + 50
    for turn in range(6):
        before = view(browser)
        fixed = before["from"] + (400 - at["left"]) / (at["right"] - at["left"]) * (before["to"] - before["from"])
        browser.wheel(x, y, -240)
        after = view(browser)
        still = after["from"] + (400 - at["left"]) / (at["right"] - at["left"]) * (after["to"] - after["from"])
        check(after["to"] - after["from"] < before["to"] - before["from"], "the wheel zooms in")
        check(abs(still - fixed) < 0.01, f"the step under the wheel moves from {fixed} to {still}")
        check_ticks(browser, f"zoomed {turn + 1} times")
    browser.run("document.getElementById('plot').focus({preventScroll: true})")
    before = view(browser)
    browser.key("ArrowRight")
    after = view(browser)
    length = before["to"] - before["from"]
    check(abs(after["from"] - before["from"] - length / 10) < 1e-6, "ArrowRight moves by a tenth")
    browser.key("ArrowLeft")
    check(abs(view(browser)["from"] - before["from"]) < 1e-6, "ArrowLeft moves back")
    browser.key("+")
    check(view(browser)["to"] - view(browser)["from"] < length, "+ zooms in")
    browser.hover(x, y)
    browser.key("ArrowRight")
    moved = tooltip(browser)
    browser.hover(x, y)
    check(moved == tooltip(browser), f"under a pointer that rests {moved} stays, there is {tooltip(browser)}")
    browser.key("Home")
    check(view(browser)["from"] == 0, "Home goes to the beginning")
    browser.drag(x, y, x - 100, y)
    at = view(browser)
    moved = 100 / (at["right"] - at["left"]) * (at["to"] - at["from"])
    check(abs(at["from"] - moved) < 0.01 and at["pin"] is None, f"a drag moves to {at['from']}, wanted {moved}")
    browser.wheel(x, y, -300, modifiers=8)
    check(view(browser)["high"] - view(browser)["low"] < 1, "Shift and the wheel zoom the addresses")
    browser.key("0")
    at = view(browser)
    check((at["from"], at["low"], at["high"]) == (0, 0, 1), "0 shows everything")
    check_box(browser)
    check_right_button(browser, x, y)
    browser.run("document.getElementById('axis-time').click()")
    browser.settle()
    check_ticks(browser, "on the axis of time")
    for turn in range(14):
        browser.wheel(x, y, -300)
        check_ticks(browser, f"zoomed {turn + 1} times on the axis of time")
    browser.run("document.getElementById('axis-steps').click()")
    browser.key("0")


def check_box(browser):
    """A drag with Shift shows what it framed: a rectangle of the map, or all between two places of the chart."""
    browser.run("document.activeElement.blur()")
    at = view(browser)
    wide, map_ = at["right"] - at["left"], at["map"]
    left, top = at["box"]["left"] + at["left"], at["box"]["top"] + map_["top"]
    browser.drag(left + wide / 4, top + map_["height"] / 2, left + wide / 2, top + map_["height"], modifiers=8)
    got, length = view(browser), at["to"] - at["from"]
    check(abs(got["from"] - length / 4) < 1 and abs(got["to"] - length / 2) < 1 and got["low"] < 0.01
          and abs(got["high"] - 0.5) < 0.01 and got["pin"] is None,
          f"a box in the map shows {got['from']}..{got['to']}, addresses {got['low']}..{got['high']}")
    browser.key("0")  # without the focus
    y = at["box"]["top"] + at["chart"]["top"] + 20
    browser.drag(left + wide * 3 / 4, y, left + wide / 2, y + 40, modifiers=8)
    got = view(browser)
    check(abs(got["from"] - length / 2) < 1 and abs(got["to"] - length * 3 / 4) < 1 and got["high"] == 1,
          f"a box in the chart shows {got['from']}..{got['to']}, addresses to {got['high']}")
    browser.key("0")


def check_right_button(browser, x, y):
    """What the browser's menu swallows is not the beginning of a drag."""
    browser.run("document.getElementById('plot').focus({preventScroll: true})")
    browser.key("+")
    before = view(browser)["from"]
    browser.mouse("mouseMoved", x, y)
    browser.mouse("mousePressed", x, y, button="right", clickCount=1)
    browser.hover(x - 60, y)
    check(view(browser)["from"] == before and tooltip(browser) is not None, "the right button drags the picture")
    browser.mouse("mouseReleased", x - 60, y, button="right", clickCount=1)
    browser.settle()
    check(view(browser)["pin"] is None, "the right button pins")
    browser.key("0")
    browser.key("Escape")


def check_cursor(browser, trace):
    """The keys' way to what the mouse shows, and words for those who do not see it."""
    browser.run("document.getElementById('plot').focus({preventScroll: true})")
    browser.key("p")
    peak = trace.events[trace.file["peak_event"]]
    check(tooltip(browser)[""] == f"step {peak['step']}: {peak['name']}", f"p shows {tooltip(browser)['']}")
    check(tooltip(browser)["sum"].startswith(f"{trace.file['peak_bytes']:,} ("), "the sum at the peak")
    browser.key(".")
    said = browser.run("document.getElementById('live').textContent")
    check(said.startswith(f"step {peak['step'] + 1}, "), f". says {said}")
    label = browser.run("document.getElementById('plot').getAttribute('aria-label')")
    check(trace.file["name"] in label, f"the picture is called {label}")
    at = browser.run("document.getElementById('legend-at').textContent")
    check(at == f"at the cursor, step {peak['step'] + 1}", f"the legend is of {at}")
    browser.key("Enter")
    browser.key(".")
    browser.key("Escape")
    check(tooltip(browser) is None and view(browser)["pin"] is None, "Esc lets go of cursor and pin")
    at = browser.run("document.getElementById('legend-at').textContent")
    check(at == f"at the peak, step {peak['step']}", f"the legend is of {at}")


def check_hash(browser, trace, url):
    """Pin, zoom, axis and search come back from the link; a link that is changed by hand is obeyed."""
    stay = max(trace.stays, key=lambda s: (s["to"] - s["from"]) * s["bytes"])
    x, y = pixel(browser, trace, stay)
    browser.wheel(x, y, -120)
    browser.click(*pixel(browser, trace, stay))
    search(browser, "qkv")
    browser.key("Escape")
    keep = "[ckpt.state.from, ckpt.state.to, ckpt.state.pin, ckpt.state.find, ckpt.state.table, ckpt.state.axis]"
    browser.wait("location.hash.includes('find=qkv')")
    before, link = browser.run(keep), browser.run("location.href")
    name = browser.run("ckpt.data.texts[ckpt.ranges.name[ckpt.state.pin.range]]")
    check(name == stay["name"], f"a click on {stay['name']} pins {name}")
    check(link.startswith(url + "#") and "pin=" in link, f"link {link}")
    browser.open(link)
    after = browser.run(keep)
    check(all(abs(a - b) < 1e-4 for a, b in zip(before[:2], after[:2])) and before[2:] == after[2:],
          f"the link brings {after}, wanted {before}")
    check(browser.run("document.querySelectorAll('#alive-rows tr.pinned').length") == 1, "the pin's row is marked")
    browser.run("location.hash = '#x=10~20&theme=dark&pin=3'")
    browser.wait("ckpt.state.from === 10 && ckpt.state.to === 20 && ckpt.state.pin.event === 3")
    check(browser.run("document.documentElement.dataset.look") == "dark", "theme=dark in the link")
    browser.run("location.hash = " + json.dumps("#x=5~1e999&y=2~1&pin=99999999.7&axis=<b>&theme=x&find=" +
                                                urllib.parse.quote("</script>")))
    browser.wait("ckpt.state.find === '</script>'")
    at = view(browser)
    check(at["from"] == 0 and at["pin"] is None and at["axis"] == "steps" and at["theme"] == "auto", "a foreign link")
    browser.run(f"location.hash = '#pin=3.{len(trace.stays) - 1}'")  # the last live range to begin
    browser.wait("ckpt.state.find === ''")
    check(view(browser)["pin"] is None, "a pin of another trace's is kept")
    # A frame of somebody else's may forbid it.
    browser.run("history.replaceState = () => { window.asked = true; throw new DOMException('no'); }")
    browser.key("+")
    browser.wait("window.asked")


def lightness(browser):
    """Of the middle of the page's margin, and of the canvas."""
    return browser.run("(c => { c.drawImage(document.getElementById('plot'), 0, 0); return "
                       "[getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).map(Number), "
                       "[...c.getImageData(3, 3, 1, 1).data]]; })(document.createElement('canvas')"
                       ".getContext('2d', {willReadFrequently: true}))")


def check_theme(browser):
    for name, night in (("dark", True), ("light", False)):
        browser.theme(name)
        browser.wait(f"document.documentElement.dataset.look === '{name}'")
        browser.settle()
        for rgb in lightness(browser):
            check((sum(rgb[:3]) < 200) == night, f"{name}: the ground is {rgb}")
    browser.run("document.getElementById('theme').click()")  # auto, light, dark
    browser.run("document.getElementById('theme').click()")
    browser.settle()
    check(all(sum(rgb[:3]) < 200 for rgb in lightness(browser)), "the switch goes to dark")
    browser.wait("location.hash.includes('theme=dark')")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    check(all(sum(rgb[:3]) > 700 for rgb in lightness(browser)), "paper is light")
    browser.run("dispatchEvent(new Event('afterprint'))")
    check(all(sum(rgb[:3]) < 200 for rgb in lightness(browser)), "after printing it is dark again")
    browser.run("document.getElementById('theme').click()")
    browser.settle()


def check_contrast(browser):
    """WCAG 2.2, success criterion 1.4.3: 4.5 to 1 for all text, that on the map's colours too."""
    def light(rgb):
        part = [v / 255 / 12.92 if v <= 10 else ((v / 255 + 0.055) / 1.055) ** 2.4 for v in rgb]
        return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2]

    def rgb(text):
        return [int(text[k:k + 2], 16) for k in (1, 3, 5)]

    for theme in ("dark", "light"):
        browser.theme(theme)
        browser.wait(f"document.documentElement.dataset.look === '{theme}'")
        colors = browser.run("ckpt.colors")
        greys = browser.run("ckpt.data.bands.map(b => ckpt.tint(b.rgb)).filter(([r, g, b]) => r === g && g === b)")
        apart = [abs(a[0] - b[0]) for a, b in zip(greys, greys[1:])]
        check(len(greys) == 4 and min(apart) >= 30, f"{theme}: greys {greys}")
        pairs = [(rgb(colors[ink]), rgb(colors[ground]), f"{ink} on {ground}") for ground in ("paper", "panel")
                 for ink in ("text", "quiet", "hit")]
        for ground, ink, name in browser.run("ckpt.data.kinds.map(k => [ckpt.tint(k.rgb), ckpt.textOn(ckpt.tint(k.rgb))"
                                             ", k.name])"):
            pairs.append((rgb(ink), ground, f"the name of {name}"))
        for ink, ground, words in pairs:
            a, b = sorted((light(ink), light(ground)))
            check((b + 0.05) / (a + 0.05) >= 4.5, f"{theme}: {words} has a contrast of {(b + 0.05) / (a + 0.05):.2f}")


def check_names(browser):
    """Whatever takes the focus has a name for those who hear the page, and the table has one."""
    nodes = browser.send("Accessibility.getFullAXTree")["nodes"]
    found = {}
    for node in nodes:
        role, name = node.get("role", {}).get("value", ""), node.get("name", {}).get("value", "")
        found.setdefault(role, []).append(name)
        focusable = any(p["name"] == "focusable" and p["value"]["value"] for p in node.get("properties", []))
        check(not focusable or node.get("ignored") or name != "" or role == "row", f"a {role} without a name")
    check(len(found.get("button", [])) > 10 and found.get("application") and found.get("searchbox"), f"roles {found}")
    check(found.get("table") == ["In memory"], f"the table is called {found.get('table')}")


def check_touch(browser, url):
    browser.size(420, 800, ratio=2, touch=True)
    browser.open(url)
    at = view(browser)
    check(at["box"]["width"] <= 420, f"the picture is {at['box']['width']} wide on a screen of 420")
    check(browser.run("document.documentElement.scrollWidth") <= 420, "the page is wider than a phone")
    check(browser.run("document.getElementById('plot').width") == round(at["box"]["width"] * 2), "2 pixels per pixel")
    check_ticks(browser, "on a phone")
    y, middle = at["box"]["top"] + at["map"]["top"] + 40, at["box"]["left"] + (at["left"] + at["right"]) / 2
    browser.touch("touchStart", [(middle - 30, y), (middle + 30, y)])
    for wide in (40, 50, 60):
        browser.touch("touchMove", [(middle - wide, y), (middle + wide, y)])
    browser.touch("touchEnd", [])
    browser.settle()
    after = view(browser)
    share = (after["to"] - after["from"]) / (at["to"] - at["from"])
    check(0.4 < share < 0.6, f"a pinch from 60 to 120 pixels leaves {share:.2f} of the axis, wanted a half")
    check(abs((after["from"] + after["to"]) / 2 - (at["from"] + at["to"]) / 2) < 6, "the pinch's middle stays")
    browser.size(420, 800, ratio=3, touch=True)  # another screen
    browser.mouse("mouseMoved", middle, y)
    browser.wait("ckpt.layout.ratio === 3 && document.getElementById('plot').width === "
                 f"{round(at['box']['width'] * 3)}")
    browser.touch("touchStart", [(middle, y)])
    for step in (20, 40, 60):
        browser.touch("touchMove", [(middle - step, y)])
    browser.touch("touchEnd", [])
    browser.settle()
    check(view(browser)["from"] > after["from"] + 1, "a finger moves the picture")
    browser.size(1280, 900)


def check_hostile(browser, url):
    browser.open(url)
    names = html_traces.HOSTILE
    check(browser.run("document.querySelectorAll('img, iframe, #head *:not(p), #facts *:not(dt):not(dd)').length") == 0,
          "a name became an element")
    check(browser.run("document.scripts.length") == 2, "a name became a script")
    check(browser.run("document.getElementById('title').textContent").startswith(names[0] + ": "), "title")
    check(browser.run("JSON.stringify(ckpt.data.texts.filter(t => t !== '').sort())") ==
          json.dumps(sorted(names, key=lambda n: n.encode("utf-16-be")), ensure_ascii=False, separators=(",", ":")),
          "the names are not what the trace says")
    trace = Trace("hostile.json")
    for stay in trace.stays[:4]:
        browser.hover(*pixel(browser, trace, stay))
        wanted = re.sub("[\u2028\u2029]", "\ufffd", stay["name"])
        tip = tooltip(browser) or {"death": ""}
        check(tip.get("") == wanted, f"hover shows {tip}, wanted {wanted}")
        ends = "not before the end" if stay["to"] == len(names) - 1 else f"after step {stay['to']}, "
        check(tip["death"].startswith(ends), f"death in {tip}, wanted {ends}")
    got = search(browser, "onerror=alert(1)>")
    check(got == ["1 live range, 1 step", "false"], f"search for markup: {got}")
    got = search(browser, "uPPER c")
    check(got == ["1 live range, 1 step", "false"], f"search in letters of the other case: {got}")
    got = search(browser, "/x{10000}/")
    check(got == ["1 live range, 1 step", "false"], f"search for a long name: {got}")
    check(browser.run("document.documentElement.scrollWidth") <= 1280, "a long name widens the page")
    browser.run("document.getElementById('axis-time').click()")
    browser.settle()
    browser.hover(*lane_place(browser, "to host", trace.events[8]))
    check((tooltip(browser) or {}).get("") == "step 8: tab\ufffdline\ufffdend", f"the lane shows {tooltip(browser)}")


def check_late(browser, url):
    """Times since 1970 in nanoseconds are coarser than one: the zoom ends before the picture is empty."""
    browser.open(url + "#axis=time&x=1732000000100000000~1732000000100001000")
    at = view(browser)
    for _ in range(6):
        browser.wheel(at["box"]["left"] + 400, at["box"]["top"] + at["map"]["top"] + 50, -500)
    at = view(browser)
    check(at["from"] < at["to"] and at["to"] - at["from"] < 1e8 and at["from"] > 1e18, f"{at['from']} to {at['to']}")
    check(len(at["ticks"]) >= 2, "labels of late times")


def check_quiet(browser, words):
    check(browser.requests() == [], f"{words}: asks for {browser.requests()}")
    check(browser.complaints() == [], f"{words}: {browser.complaints()}")
    browser.events.clear()


def check_long(browser, url):
    browser.open(url)
    opened = browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd")
    print(f"page of 200,000 events: {os.path.getsize(os.path.join(folder, 'long.html')) / 1e6:.1f} MB, "
          f"loaded in {opened:.0f} ms")
    for words, state in (("everything", ""), ("a thousandth", "ckpt.state.from = 60000; ckpt.state.to = 60200;")):
        times = sorted(browser.run(f"({{x: (() => {{ {state} }})(), t: [...Array(9)].map(() => ckpt.measure())}}).t"))
        print(f"one redraw at 200,000 events, 1280 x 900, {words}: median {times[4]:.1f} ms, "
              f"{times[0]:.1f} to {times[-1]:.1f}")
    browser.run("location.hash = '#x=0~200000'")
    trace = Trace("long.json")
    stay = max(trace.stays, key=lambda s: (s["to"] - s["from"]) * s["bytes"])
    browser.run(f"location.hash = '#x={stay['from'] - 3}~{stay['to'] + 4}'")
    browser.wait(f"ckpt.state.from > {stay['from'] - 4} && ckpt.state.from <= {stay['from'] - 3}")
    browser.settle()
    browser.hover(*pixel(browser, trace, stay))
    check((tooltip(browser) or {}).get("") == stay["name"], f"hover among 100,000 shows {tooltip(browser)}")
    got = search(browser, "/block\\.77\\./")
    stays = trace.count(lambda t: "block.77." in t)
    check(got[0].startswith(f"{stays:,} live ranges, "), f"search among 100,000: {got}, wanted {stays}")


def main():
    for name in ("two.html", "hostile.html"):
        check_markup(name)
    pages = {name: "file://" + urllib.parse.quote(os.path.join(folder, name + ".html"))
             for name in ("two", "hostile", "late", "long", "program", "plan")}
    browser = html_drive.Browser(html_drive.find_browser())
    try:
        browser.theme("light")
        browser.open(pages["two"])
        trace = Trace("predicted.json")
        check_hover(browser, trace)
        check_table(browser, trace)
        check_drawn(browser, trace)
        check_highest(browser, trace)
        check_legend(browser, trace)
        check_tip(browser, trace)
        check_box_names(browser)
        for width in (1280, 800, 390, 320):
            browser.size(width, 900)
            browser.settle()
            check_peak(browser, width)
        check_tip(browser, trace)
        browser.size(1280, 900)
        browser.settle()
        check_search(browser, trace)
        check_zoom(browser)
        check_cursor(browser, trace)
        check_theme(browser)
        check_contrast(browser)
        check_names(browser)
        text = browser.run("document.body.innerText")
        check("differs first at step" in text, "the measured trace's difference is said")
        check("drawn in" not in text, "what a redraw takes is no news to a reader")
        check_quiet(browser, "two traces")
        check_hash(browser, trace, pages["two"])
        check_quiet(browser, "links")
        check_touch(browser, pages["two"])
        check_quiet(browser, "on a phone")
        check_hostile(browser, pages["hostile"])
        check_quiet(browser, "hostile names")
        browser.open(pages["plan"])  # the same places, and no times
        check_hover(browser, trace)
        check(browser.run("document.getElementById('axis-time').disabled"), "a plan has no times")
        check_quiet(browser, "a plan alone")
        browser.open(pages["program"])
        check(browser.run("ckpt.ranges.count") > 100 and browser.run("ckpt.state.axis") == "time", "a program's blocks")
        check_ticks(browser, "a program without a plan")
        check_quiet(browser, "a program without a plan")
        check_late(browser, pages["late"])
        check_quiet(browser, "a late clock")
        check_long(browser, pages["long"])
        check_quiet(browser, "200,000 events")
    finally:
        browser.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
