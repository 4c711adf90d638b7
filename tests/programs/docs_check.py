#!/usr/bin/env python3
"""Every link in every page leads somewhere: usage docs_check.py SOURCE_DIR

A link to a file or folder of the repository must exist, and "#heading" must be a heading of its page. Pages of docs/ that
no other page links to are faults too. Links to other machines are not followed."""
import pathlib
import re
import sys


def anchors(page):
    """The anchors that GitHub makes of a page's headings."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = sum(1 for other in found if other == name or re.fullmatch(re.escape(name) + r"-\d+", other))
        found.add(f"{name}-{count}" if count else name)
    return found


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    pages = [p for folder in (root, root / "models", root / "traces", root / "bench") for p in folder.glob("*.md")]
    pages += (root / "docs").rglob("*.md")
    faults, linked, count = [], set(), 0
    for page in pages:
        text = re.sub(r"```.*?```|`[^`\n]*`", lambda m: "\n" * m[0].count("\n"), page.read_text(), flags=re.S)
        for match in re.finditer(r"\]\(([^)\s]+)\)", text):
            link, where = match[1], f"{page.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}"
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            count += 1
            if not target.exists():
                faults.append(f"{where}: {link}: no such file")
            elif anchor and (target.suffix != ".md" or anchor not in anchors(target)):
                faults.append(f"{where}: {link}: no such heading")
            if target != page:
                linked.add(target)
    faults += [f"{p.relative_to(root)}: no page links to it" for p in pages if p.relative_to(root).parts[0] == "docs" and p not in linked]
    print("\n".join(faults) or f"{count} links in {len(pages)} pages")
    sys.exit(1 if faults else 0)


main()
