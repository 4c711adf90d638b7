#!/usr/bin/env python3
"""Holds the forms of one comparison against its JSON: compare_forms.py REPORT.json FORM... (md, csv, xml, html).
Every number and name must be in each, hostile names must have stayed text. Standard library only."""
import base64
import csv
import hashlib
import html.parser
import json
import re
import sys
import xml.etree.ElementTree as tree

MAY_NOT = "script", "img", "iframe", "object", "link", "base", "form", "svg"


def plain(text):
    """What is no text may be shown as spaces or U+FFFD, one for each of its bytes."""
    return re.sub("[\x00-\x20\x7f-\x9f\u2028-\u202e\ufffd]+", " ", text)


def fail(text):
    sys.exit(f"FAILED: {text}")


class Page(html.parser.HTMLParser):
    """All words of a page, and a complaint about whatever could run or load."""

    def __init__(self):
        super().__init__()
        self.words, self.tag, self.policy, self.style = [], [], "", ""

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name.startswith("on") or name in ("style", "src", "href"):
                fail(f"page: <{tag} {name}={value}>")
        if tag in MAY_NOT:
            fail(f"page: <{tag}>")
        given = dict(attrs)
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        if tag != "meta":
            self.tag.append(tag)

    def handle_endtag(self, tag):
        if not self.tag or self.tag.pop() != tag:
            fail(f"page: </{tag}> ends nothing")

    def handle_data(self, data):
        if self.tag and self.tag[-1] == "style":
            self.style += data
        else:
            self.words.append(data)


def read_html(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    page = Page()
    page.feed(text)
    page.close()
    style = re.search("<style>(.*?)</style>", text, re.S).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    if f"style-src 'sha256-{digest}';" not in page.policy or "default-src 'none'" not in page.policy:
        fail(f"page: policy {page.policy}, wanted the style's hash {digest}")
    if page.tag:
        fail(f"page: open at the end: {page.tag}")
    for number in re.findall('<td class="number[^"]*">([^<]*)', text):  # a narrow page parted numbers from their units
        if re.search(r" (?!\()", number):
            fail(f"page: {number!r} may break before its unit")
    return " ".join(page.words).replace("\u00a0", " ")


def read_markdown(path):
    """The words that a reader of the rendered text sees: code spans as they are, the rest without its escapes."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    width = 0
    seen = []
    for line in text.splitlines():
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line)
            if width and len(cells) != width:
                fail(f"Markdown: {len(cells)} cells, wanted {width}: {line}")
            width = len(cells)
        else:
            width = 0
        parts = re.split(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", line)
        for i in range(0, len(parts), 3):
            outside = parts[i]
            if re.search(r"(?<!\\)[<>@]", outside) and not re.fullmatch(
                r"</?(details|summary)>.*", outside.replace("<details><summary>", "<summary>")
            ):
                fail(f"Markdown: not escaped: {outside}")
            outside = re.sub(r"&#(\d+);", lambda m: chr(int(m.group(1))), outside)
            seen.append(re.sub(r"\\(.)", r"\1", outside))
            if i + 2 < len(parts):
                seen.append(parts[i + 2].strip().replace("\\|", "|"))
    return " ".join(seen)


def check_csv(path, report):
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for difference in report["differences"]:
        for metric in difference.get("metrics", []):
            mine = [
                r
                for r in rows
                if r["section"] == "metric"
                and r["name"] == metric["name"]
                and r["part"] == metric.get("where", "")
                and r["new_file"] == difference["new"]
            ]
            if len(mine) != 1:
                fail(f"CSV: {len(mine)} lines of {metric['name']}")
            for side in ("base", "new"):
                want = metric.get(side)
                have = mine[0][side]
                if (want is None) != (have == "") or (want is not None and abs(float(have) - want) > 1e-9 * abs(want)):
                    fail(f"CSV: {metric['name']} {side}: {have}, wanted {want}")
            if mine[0]["verdict"] != metric["verdict"]:
                fail(f"CSV: {metric['name']}: {mine[0]['verdict']}, wanted {metric['verdict']}")
    return " ".join(f"{r['name']} {r['note']}" for r in rows)


def check_junit(path, report):
    root = tree.parse(path).getroot()
    tally = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for suite in root:
        cases = suite.findall("testcase")
        names = [c.get("name") for c in cases]
        if len(set(names)) < len(names) or not all(re.fullmatch("[a-z_]+", n) for n in names):
            fail(f"JUnit: names that no CI server can follow from run to run: {names}")
        have = {
            "tests": len(cases),
            "failures": sum(c.find("failure") is not None for c in cases),
            "errors": sum(c.find("error") is not None for c in cases),
            "skipped": sum(c.find("skipped") is not None for c in cases),
        }
        for name, count in have.items():
            tally[name] += count
            if int(suite.get(name)) != count:
                fail(f"JUnit: {name}={suite.get(name)}, wanted {count}")
    for name, count in tally.items():
        if int(root.get(name)) != count:
            fail(f"JUnit: all {name}={root.get(name)}, wanted {count}")
    if report["status"] != 4 and (tally["failures"] > 0) != (report["status"] == 1):
        fail(f"JUnit: {tally['failures']} failures, exit {report['status']}")
    if (tally["errors"] > 0) != (report["status"] == 4):
        fail(f"JUnit: {tally['errors']} errors, exit {report['status']}")
    return " ".join(root.itertext()) + " ".join(v for e in root.iter() for v in e.attrib.values())


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    words = {}
    for path in sys.argv[2:]:
        form = path.rsplit(".", 1)[1]
        if form == "html":
            words[form] = read_html(path)
        elif form == "md":
            words[form] = read_markdown(path)
        elif form == "csv":
            words[form] = check_csv(path, report)
        else:
            words[form] = check_junit(path, report)
    named = 0
    for difference in report["differences"]:
        shown = ("time_ns", "recompute_ns", "peak_bytes", "copied_bytes")  # tables leave out what has no share in them
        names = [
            g["name"]
            for g in difference.get("layer_groups", [])
            if g["change"] != "same" or "→" in g["what"] or any(key in g for key in shown)
        ]
        names += [s["what"] for s in difference["settings"]] if difference["compared"] else []
        names += [c["name"] for c in difference.get("contributors", [])]
        for name in names:
            for form in ("md", "html"):
                if form in words and plain(name) not in plain(words[form]) and len(name) < 300:
                    fail(f"{form}: {name!r} is not shown")
            named += 1
    print(f"{len(words)} forms agree with {sys.argv[1].split('/')[-1]}, {named} names")


main()
