#!/bin/bash
# What ckpt-view writes for other tools, read back by something that is not ours: Chrome's trace format and CSV.
set -u
source=$1 bin=$2 work=$3
golden=$source/tests/golden
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
echo "leak:libfontconfig" >suppressions
export LSAN_OPTIONS=suppressions=$work/suppressions:print_suppressions=0
failed=0
fail() { echo "FAILED: $*"; failed=1; }

cat >check.py <<'EOF_PYTHON'
"""check.py exported.json|exported.csv trace.json...: the export says what the traces say, and slices nest."""
import csv, json, sys
from decimal import Decimal

CATEGORIES = "weights gradients optimizer inputs activations saved workspace staging other outside".split()


def check_nesting(slices, where):
    """No slice of a thread ends inside another that began before it."""
    stack = []
    for ts, dur, order in sorted(((s["ts"], s["dur"], k) for k, s in enumerate(slices)), key=lambda s: (s[0], -s[1])):
        assert dur >= 0, (where, ts)
        while stack and stack[-1] <= ts:
            stack.pop()
        assert not stack or ts + dur <= stack[-1], (where, ts, dur, stack[-1])
        stack.append(ts + dur)


def check_order(slices, where):
    """Of two that begin together, the one around the other comes first in the file: viewers take them in order."""
    last = {}
    for s in slices:
        assert s["dur"] <= last.get(s["ts"], s["dur"]), (where, s["name"])
        last[s["ts"]] = s["dur"]


def check_trace(pid, events, trace):
    mine = [e for e in events if e["pid"] == pid]
    assert [e["args"]["name"] for e in mine if e["name"] == "process_name"][0].startswith(
        "measured: " if trace["measured"] else "predicted: ")
    threads = {e["tid"]: e["args"]["name"] for e in mine if e["name"] == "thread_name"}
    assert len(set(threads.values())) == len(threads), threads
    steps = all(e["end_ns"] == 0 for e in trace["events"])  # no times: one microsecond a step
    point = lambda e: e["phase"] in ("free", "allocate")
    begin = lambda k, e: 1000 * k if steps else e["start_ns"]
    end = lambda k, e: begin(k, e) if point(e) else 1000 * (k + 1) if steps else e["end_ns"]

    # Every event once, as a slice or a point of its stream.
    wanted = sorted((begin(k, e), end(k, e), e["name"], e["phase"], e["step"], e.get("stream", "compute"),
                     e.get("launches", 0), e.get("kernel_ns", 0) if e.get("launches", 0) > 0 else 0)
                    for k, e in enumerate(trace["events"]))
    found, by_thread = [], {}
    for e in mine:
        if e["ph"] == "X":
            by_thread.setdefault(e["tid"], []).append(e)
        if e["ph"] in "Xi" and "step" in e["args"] and e["name"] != "peak" and e.get("cat") not in ("layer", "phase"):
            stream = threads[e["tid"]]
            if stream.endswith(")") and stream not in {w[5] for w in wanted}:  # "compute (2)": it did not fit the first
                stream = stream[:stream.rindex(" (")]
            ns, length = e["ts"] * 1000, e.get("dur", 0) * 1000
            assert ns == int(ns) and length == int(length)
            found.append((int(ns), int(ns + length), e["name"], e["cat"], e["args"]["step"], stream,
                          e["args"].get("launches", 0), e["args"].get("kernel_ns", 0)))
            assert ("dur" in e) != point({"phase": e["cat"]})
    assert sorted(found) == wanted, [(a, b) for a, b in zip(sorted(found), wanted) if a != b][:2]
    for tid, slices in by_thread.items():
        check_nesting(slices, (pid, threads[tid]))
        check_order(slices, (pid, threads[tid]))

    # Around what a layer ran is its slice, and nothing else is inside.
    for tid, slices in by_thread.items():
        runs = [s for s in slices if s["cat"] not in ("layer", "phase")]
        for around in (s for s in slices if s["cat"] == "layer"):
            inside = [s for s in runs
                      if around["ts"] <= s["ts"] and s["ts"] + s["dur"] <= around["ts"] + around["dur"]
                      and around["dur"] > 0 and s["dur"] > 0]
            assert len(inside) <= around["args"]["runs"] and around["args"]["runs"] >= 2, around
            for s in inside:
                name = s["args"]["layer"]
                begins = name.startswith(around["name"])  # names of more than 199 bytes are cut
                assert begins and (name[len(around["name"]):][:1] in ("", ".") or len(around["name"]) == 199), name[:40]
            assert len({s["cat"] for s in inside}) <= 1, around

    # In the file a layer's slice stands before its runs; it lasts from the first to the last of them.
    for slices in by_thread.values():
        for k, around in enumerate(slices):
            if around["cat"] == "layer":
                inside = [s for s in slices[k:] if s["cat"] not in ("layer", "phase")][:around["args"]["runs"]]
                assert around["ts"] == inside[0]["ts"], around
                assert around["ts"] + around["dur"] == inside[-1]["ts"] + inside[-1]["dur"], around

    # A second thread of a stream is for what does not fit the one before; a phase is around all its runs.
    by_name = {threads[tid]: [s for s in slices if s["cat"] != "layer"] for tid, slices in by_thread.items()}
    for name, slices in by_name.items():
        stream, _, number = name.rpartition(" (")
        if stream in by_name and number[:-1].isdigit() and name not in {w[5] for w in wanted}:
            before = by_name[stream if number == "2)" else f"{stream} ({int(number[:-1]) - 1})"]
            for s in slices:
                assert any(b["ts"] <= s["ts"] < b["ts"] + b["dur"] for b in before), (name, s)
    for s in by_name.get("compute", []) if "phases" in by_name else []:
        if s["cat"] in ("forward", "backward", "recompute", "update"):
            assert any(p["name"] == s["cat"] and p["ts"] <= s["ts"] and s["ts"] + s["dur"] <= p["ts"] + p["dur"]
                       for p in by_name["phases"]), s

    # Counters: in order of time, all categories, the sum as the budget counts it.
    counts = [e for e in mine if e["ph"] == "C" and e["name"] == "memory"]
    assert len(counts) == len(trace["events"]) + (len(trace["events"]) > 0)
    assert all(a["ts"] <= b["ts"] for a, b in zip(counts, counts[1:]))
    now = 0
    for k, (count, e) in enumerate(zip(counts, trace["events"])):
        now = max(now, begin(k, e))
        assert count["ts"] * 1000 == now, (k, count)
        for c in CATEGORIES:
            assert count["args"].get(c, 0) == e["bytes"].get(c, 0), (k, c)
    used = [e for e in mine if e["ph"] == "C" and e["name"] == "in use"]
    assert all(a["ts"] <= b["ts"] for a, b in zip(used, used[1:]))
    if trace["events"]:
        assert max(e["args"]["bytes"] for e in used) == trace["peak_bytes"]
        assert [e["args"]["bytes"] for e in mine if e["name"] == "peak"] == [trace["peak_bytes"]]
    for name in ("budget", "capacity"):
        limits = {e["args"]["bytes"] for e in mine if e["ph"] == "C" and e["name"] == name}
        value = trace.get(name + "_bytes", 0)
        assert limits == ({value} if value > 0 else set()), (name, limits)

    # Arrows: from a copy to the host to the copy of the same buffer back.
    ends = {}
    for e in mine:
        if e["ph"] in "sf":
            here = [s for s in by_thread[e["tid"]] if s["ts"] == e["ts"] and s["cat"] == "copy"]
            assert here and (e["ph"] == "s" or e["bp"] == "e"), e
            ends.setdefault(e["id"], {})[e["ph"]] = (threads[e["tid"]], {s["name"] for s in here}, e["ts"])
    for pair in ends.values():
        assert pair["s"][0].startswith("d2h") and pair["f"][0].startswith("h2d") and pair["s"][2] <= pair["f"][2]
        assert pair["s"][1] & pair["f"][1], pair
    return len(ends)


def check_chrome(path, traces):
    text = open(path, encoding="utf-8").read()
    file = json.loads(text, parse_float=Decimal)
    events = file["traceEvents"]
    assert {e["pid"] for e in events} == set(range(1, len(traces) + 1))
    assert {e["ph"] for e in events} <= set("MXiCsf")
    return sum(check_trace(k + 1, events, t) for k, t in enumerate(traces))


def safe(name):
    return "'" + name if name[:1] in tuple("=+-@") else name


def check_csv(path, traces):
    data = open(path, "rb").read()
    assert data.count(b"\n") == data.count(b"\r\n") == 1 + sum(len(t["events"]) for t in traces)
    rows = list(csv.DictReader(open(path, newline="", encoding="utf-8"), strict=True))
    k = 0
    for number, t in enumerate(traces, 1):
        for e in t["events"]:
            row = rows[k]
            k += 1
            assert None not in row and None not in row.values(), row
            assert (row["trace"], row["kind"]) == (str(number), "measured" if t["measured"] else "predicted")
            for key, column in ("name", "name"), ("layer", "layer"), ("stream", "stream"):
                text = safe(e.get(key, "compute" if key == "stream" else ""))
                clean = "".join("\ufffd" if ord(c) < 32 or 127 <= ord(c) < 160 else c for c in text)
                assert row[column] == clean, (row[column], clean)
            assert row["phase"] == e["phase"]
            for key in "step start_ns end_ns size_bytes address kernel_ns launches".split():
                assert int(row[key]) == e.get(key, 0), (key, row)
            for c in CATEGORIES:
                assert int(row[c + "_bytes"]) == e["bytes"].get(c, 0)
            assert int(row["in_use_bytes"]) == sum(n for c, n in e["bytes"].items() if c != "outside")
    assert k == len(rows)
    return len(rows)


traces = [json.load(open(p)) for p in sys.argv[2:]]
print((check_csv if sys.argv[1].endswith(".csv") else check_chrome)(sys.argv[1], traces))
EOF_PYTHON

# export NAME traces...: both formats, checked; the number of arrows goes to NAME.arrows.
export_both() {
    local name=$1
    shift
    "$bin/ckpt-view" "$@" -o "$name.json" || fail "$name: json"
    "$bin/ckpt-view" "$@" -o "$name.csv" || fail "$name: csv"
    "$bin/ckpt-view" "$@" -f json | cmp - "$name.json" || fail "$name: other bytes the second time"
    python3 check.py "$name.json" "$@" >"$name.arrows" || fail "$name: Chrome's format"
    python3 check.py "$name.csv" "$@" >/dev/null || fail "$name: CSV"
}

export_both two "$golden/predicted.json" "$golden/measured.json"
"$bin/ckpt-plan" --effort 0 -d h200 -b 60% "$source/models/byte-gpt.json" -o plan.json --trace copies.json >/dev/null ||
    fail "a plan with copies"
export_both copied copies.json
[ "$(cat copied.arrows)" -ge 2 ] || fail "$(cat copied.arrows) arrows between copies"
grep -q '"name": "h\.[0-9]*", "cat": "layer"' copied.json || fail "no slice around a block"

# Plans have an order and no times.
"$bin/ckpt-view" plan.json -o plan.trace.json || fail "a plan as json"
python3 - plan.json plan.trace.json <<'EOF' || fail "a plan's steps are not a microsecond each"
import json, sys
plan, events = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))["traceEvents"]
steps = {e["args"]["step"]: e for e in events if e["ph"] in "Xi" and "step" in e["args"] and e["name"] != "peak"}
assert len(steps) == len(plan["steps"]), (len(steps), len(plan["steps"]))
assert all(e["ts"] == k and e.get("dur", 1) == 1 for k, e in steps.items())
EOF

# Made up: streams whose runs overlap, layers that begin alike, every kind of name.
python3 - made.json none.json "${CKPT_TEST_SEED:-1}" <<'EOF' || fail "no made-up trace"
import json, random, sys
print("seed", sys.argv[3])
draw = random.Random(int(sys.argv[3]))
names = ["</script><img onerror=alert(1)>", 'a "quoted", name', "=1+1", "@sum", "line\nbreak\ttab\u0001", "x" * 10000,
         "h.0.att", "é→", "'", ""]
layers = ["h.0.att", "h.0.att.q", "h.0", "h.1.mlp", "h.10", "h", "", ".", "a..b", ".".join("p" * 20), names[0], "x" * 5000]
def made(plan):
    events, peak, at = [], -1, 0
    for step in range(300):
        start = draw.randrange(20000) if draw.random() < 0.3 else step * 50
        kind = draw.choice("forward backward recompute copy update wait free other".split() +
                           ([] if plan else ["allocate"]))
        e = {"step": step, "name": draw.choice(names), "layer": draw.choice(layers),
             "stream": draw.choice(["compute", "compute", "d2h", "h2d", "stream 7", names[0]]), "phase": kind,
             "start_ns": start, "end_ns": start + (0 if kind == "free" else draw.choice([0, 1, 49, 50, 700, 4999])),
             "bytes": {"weights": 10, "activations": draw.randrange(1 << 40), "outside": draw.randrange(5)}}
        if kind in ("forward", "backward"):
            e.update(kernel_ns=draw.randrange(1000), launches=draw.randrange(9))
        if not plan and kind in ("free", "allocate"):
            e.update(size_bytes=512, address=draw.randrange(1 << 47), end_ns=start)
        events.append(e)
        total = e["bytes"]["weights"] + e["bytes"]["activations"]
        if total > peak:
            peak, at = total, step
    return {"format": "ckpt-trace/1", "name": names[0], "plan": names[1] if plan else "", "measured": True,
            "budget_bytes": 1 << 41 if plan else 0, "static_bytes": 10 if plan else 0, "arena_bytes": 0,
            "peak_bytes": peak, "peak_event": at, "time_ns": 30000, "capacity_bytes": 1 << 42,
            "machine": {"device": "x", "driver": "", "clocks": "", "libraries": "", "commit": "", "command": "", "date": ""},
            "events": events}
for path, plan in (sys.argv[1], True), (sys.argv[2], False):
    json.dump(made(plan), open(path, "w"))
EOF
export_both made_out made.json none.json

# Our own reader of that format takes it.
for name in two copied made_out; do
    "$bin/ckpt-profile" --import "$name.json" -o again.json >/dev/null 2>err || fail "--import $name.json: $(cat err)"
done
"$bin/ckpt-view" again.json -o again.svg || fail "what was imported cannot be drawn"
exit $failed
