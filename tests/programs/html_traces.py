#!/usr/bin/env python3
"""Traces to try the page on: html_traces.py long|hostile|measured|late OUT [FROM].

long      200,000 events with 100,000 stays in one arena: 100,000 ops, the buffer of each freed by a step of its own
hostile   a small plan whose names try to leave the page's data, its markup and its pictures; one stay ends a step
          before the last, and one copy runs later than the steps after it
measured  FROM as if it had been measured: other times, and 512 bytes more of activations at one step
late      FROM with times of a clock that began in 1970"""
import json
import sys

HOSTILE = ["</script><img src=x onerror=alert(1)>", "<!-- <script>", "a\u2028b\u2029c", "\"quoted\" 'twice' \\ back",
           "x" * 10000, "\u202egnirts\u202c", "]]>&amp;&#60;", "${alert(2)}`", "tab\tline\nend", "\u0001\u0002\u0008",
           "Upper Case"]


def event(step, name, layer, phase, time, kinds):
    return {"step": step, "name": name, "layer": layer, "stream": "compute", "phase": phase, "start_ns": time,
            "end_ns": time + (0 if phase == "free" else 1000 + step % 977), "bytes": kinds}


def write(path, name, events, places, static, arena, time):
    sums = [sum(one["bytes"].values()) for one in events]
    peak = max(sums)
    with open(path, "w", encoding="utf-8") as out:
        out.write(json.dumps({"format": "ckpt-trace/1", "name": name, "plan": "by hand", "measured": False,
                              "budget_bytes": peak + 1000000, "static_bytes": static, "arena_bytes": arena,
                              "peak_bytes": peak, "peak_event": sums.index(peak), "time_ns": time,
                              "events": events, "places": places}, ensure_ascii=False))


def long_trace(path, ops=100000, slots=600):
    """Slot k of the arena is free or holds one buffer; a generator of 31 bits chooses."""
    sizes = [(1 + k * 37 % 101) * 4096 for k in range(slots)]
    offset = [sum(sizes[:k]) for k in range(slots)]
    state, time = 12345, 0
    free, live, events, places = list(range(slots)), [], [], []
    held = {"weights": 64000000, "activations": 0, "gradients": 0}

    def release(which):
        slot, since, gone, kind = live.pop(which)
        held[kind] -= sizes[slot]
        free.append(slot)
        places.append({"what": gone, "category": kind, "from": since, "to": len(events), "offset": offset[slot],
                       "bytes": sizes[slot]})
        events.append(event(len(events), gone, "", "free", time, dict(held)))

    for op in range(ops):
        state = (1103515245 * state + 12345) % 2**31
        category = "activations" if op < ops // 2 else "gradients"
        slot = free.pop((state >> 8) % len(free))
        name, layer = f"block.{op // 50 % 1000}.op{op}", f"block.{op // 50 % 1000}"
        held[category] += sizes[slot]
        live.append((slot, len(events), name, category))
        phase = "forward" if op < ops // 2 else "backward"
        events.append(event(len(events), name + "/run", layer, phase, time, dict(held)))
        time = events[-1]["end_ns"]
        state = (1103515245 * state + 12345) % 2**31
        # As many stay as a wave says: up to 550, down to 50.
        keep = 50 + abs((op // 50) % 1000 - 500)
        for _ in range(2 if len(live) > keep else len(live) == keep):
            release((state >> 8) % len(live))
    while live:
        release(0)
    write(path, "long", events, places, held["weights"], sum(sizes), time)


def hostile_trace(path):
    events, places, held = [], [], 0
    for step, name in enumerate(HOSTILE):
        held += 1048576
        events.append(event(step, name, name, "forward", step * 1000, {"weights": 4096, "activations": held}))
        places.append({"what": name, "category": "activations", "from": step, "to": len(HOSTILE) - 1 - (step == 1),
                       "offset": step * 1048576, "bytes": 1048576})
    events[8].update(stream="d2h", phase="copy", start_ns=15000, end_ns=17000)  # runs after what comes after it
    write(path, HOSTILE[0], events, places, 4096, held, 20000)


def measured_trace(path, source):
    with open(source, encoding="utf-8") as file:
        trace = json.load(file)
    trace["measured"] = True
    scale, wrong = 1.25, len(trace["events"]) // 3
    for one in trace["events"]:
        one["start_ns"], one["end_ns"] = int(one["start_ns"] * scale), int(one["end_ns"] * scale)
    trace["time_ns"] = int(trace["time_ns"] * scale)
    trace["events"][wrong]["bytes"]["activations"] += 512
    sums = [sum(v for k, v in one["bytes"].items() if k != "outside") for one in trace["events"]]
    trace["peak_bytes"], trace["peak_event"] = max(sums), sums.index(max(sums))
    with open(path, "w", encoding="utf-8") as out:
        json.dump(trace, out)


def late_trace(path, source):
    with open(source, encoding="utf-8") as file:
        trace = json.load(file)
    for one in trace["events"]:
        one["start_ns"] += 1732000000000000000
        one["end_ns"] += 1732000000000000000
    with open(path, "w", encoding="utf-8") as out:
        json.dump(trace, out)


if __name__ == "__main__":
    make = {"long": long_trace, "hostile": hostile_trace, "measured": measured_trace, "late": late_trace}
    make[sys.argv[1]](*sys.argv[2:])
