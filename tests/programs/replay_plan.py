#!/usr/bin/env python3
"""Replays ckpt-plans on a ckpt-graph from docs/reference/formats.md alone, in the plainest way, sharing no code with ckpt.

Usage: replay_plan.py graph.json plan.json...   (exit 1 and one line when a rule is broken)
"""
import json
import sys

with open(sys.argv[1]) as f:
    graph = json.load(f)

ops = {op["name"]: op for op in graph["ops"]}
order = [op["name"] for op in graph["ops"]]
# Ops that a plan which says "reordered" may run for the first time wherever what they read is there.
may_move = {op["name"] for op in graph["ops"] if op.get("recompute", op["phase"] == "forward") and not any(op.get(key) for key in ("adds", "inplace", "variants", "optional"))}
optional = {op["name"] for op in graph["ops"] if op.get("optional")}
size = {b["name"]: b["bytes"] for b in graph["buffers"]}
static = sum(s["bytes"] for s in graph.get("static", []))
link = graph.get("link", {})

# (op, buffer) -> additions to the buffer that stand before the op in reference order
additions_before, additions = {}, {}
for op in graph["ops"]:
    for way in [op] + op.get("variants", []):
        for b in way.get("reads", op.get("reads", [])) + way.get("adds", op.get("adds", [])):
            additions_before[op["name"], b] = additions.get(b, 0)
    for b in op.get("adds", []):
        additions[b] = additions.get(b, 0) + 1


def stop(file, step, text):
    sys.exit(f"{file}: step {step}: {text}")


def way_of(op, step):
    """The op as this step runs it, and whose bits it gives: "" for those of the op itself."""
    name = step.get("variant", op.get("variant"))
    if name == op.get("variant"):
        return op, ""
    for variant in op.get("variants", []):
        if variant["name"] == name:
            return {**op, **variant, "name": op["name"]}, "" if variant.get("exact", True) else name
    sys.exit(f"{op['name']} has no variant {name}")


def may_rerun(op):
    return op.get("recompute", op["phase"] == "forward") and not op.get("adds")


def copy_ns(b, direction):
    return -(-size[b] * 10**9 // link[direction])  # rounded up


# What a plan may carry of its graph, "static", "buffers" and "ops": all three of these, or none.
outline = {
    "static": [(s["name"], s["bytes"]) for s in graph.get("static", [])],
    "buffers": [(b["name"], b["bytes"], b.get("kind", "activation")) for b in graph["buffers"]],
    "ops": [(op["name"], op["phase"], op.get("layer", ""), op["time_ns"]) for op in graph["ops"]],
}


def check_outline(file, found):
    if found["name"] != graph["name"]:
        sys.exit(f"{file}: is of graph {found['name']}, this is {graph['name']}")
    if not any(key in found for key in outline):
        return
    told = {
        "static": [(s["name"], s["bytes"]) for s in found["static"]],
        "buffers": [(b["name"], b["bytes"], b["kind"]) for b in found["buffers"]],
        "ops": [(op["name"], op["phase"], op.get("layer", ""), op["time_ns"]) for op in found["ops"]],
    }
    for key, wanted in outline.items():
        if told[key] != wanted:
            first = next((x for x in zip(told[key], wanted) if x[0] != x[1]), "their number")
            sys.exit(f"{file}: the outline's {key} differ from the graph's, first: {first}")


def replay(file):
    with open(file) as f:
        plan = json.load(f)
    check_outline(file, plan["graph"])

    # The clock: compute, which also issues the steps, and one engine for copies each way.
    now, d2h, h2d = 0, 0, 0
    taken_at, arrived_at = {}, {}  # buffer -> when its last offload has read it, its last fetch is there
    offload_bytes = 0
    live, on_host, ran = {}, set(), set()  # live: buffer -> step of its birth
    lifetimes, workspaces = [], []         # (name, from, to)
    first_runs, peak, time, again_time = [], static, 0, 0
    added = {}  # buffer -> additions since it was written
    bits = {}  # op -> whose bits its first run gave
    steps = plan["steps"]
    for k, step in enumerate(steps):
        if "run" in step:
            op = ops.get(step["run"]) or stop(file, k, f"no op {step['run']}")
            op, gives = way_of(op, step)
            name, again = op["name"], step.get("again", False)
            if bits.setdefault(name, gives) != gives:
                stop(file, k, f"{name} gives other bits than its first run")
            if again != (name in ran):
                stop(file, k, f"{name}: again is {again}")
            if again and not may_rerun(op):
                stop(file, k, f"{name} must not be recomputed")
            if not again:
                first_runs.append(name)
            ran.add(name)
            for b in op.get("reads", []) + op.get("adds", []):
                if b not in live:
                    stop(file, k, f"{name} needs {b}, which is not in memory")
                if not on_host and added.get(b, 0) != additions_before[name, b]:
                    stop(file, k, f"{name} finds {b} after {added.get(b, 0)} additions, in reference order after {additions_before[name, b]}")
            for b in op.get("writes", []):
                added[b] = 0
            for b in op.get("adds", []):
                added[b] += 1
            waits = [arrived_at.get(b, 0) for b in op.get("reads", []) + op.get("adds", [])]
            waits += [taken_at.get(b, 0) for b in op.get("adds", [])]  # the copy must not see half of a sum
            if step.get("inplace"):
                for out, taken in op.get("inplace", []):
                    waits.append(taken_at.get(taken, 0))
                    lifetimes.append((taken, live.pop(taken), k - 1))
            for b in op.get("writes", []):
                if b in live:
                    stop(file, k, f"{name} writes {b}, which is in memory")
                live[b] = k
            workspace = op.get("workspace_bytes", 0)
            if workspace:
                workspaces.append((k, workspace))
            peak = max(peak, static + sum(size[b] for b in live) + workspace)
            now = max([now] + waits) + op["time_ns"]
            time += op["time_ns"]
            again_time += op["time_ns"] if again else 0
        elif "free" in step:
            b = step["free"]
            if b not in live:
                stop(file, k, f"frees {b}, which is not in memory")
            now = max(now, taken_at.get(b, 0), arrived_at.get(b, 0))
            lifetimes.append((b, live.pop(b), k))
        elif "offload" in step:
            b = step["offload"]
            if b not in live or not link:
                stop(file, k, "cannot offload")
            d2h = max(now, d2h, arrived_at.get(b, 0)) + copy_ns(b, "d2h_bytes_per_s")
            taken_at[b] = d2h
            on_host.add(b)
            offload_bytes += size[b]
        elif "fetch" in step:
            b = step["fetch"]
            if b not in on_host or b in live:
                stop(file, k, "cannot fetch")
            h2d = max(now, h2d, taken_at.get(b, 0)) + copy_ns(b, "h2d_bytes_per_s")
            arrived_at[b] = h2d
            live[b] = k
            peak = max(peak, static + sum(size[b] for b in live))
        else:
            stop(file, k, f"unknown step {step}")
    last = len(steps) - 1
    if sorted(first_runs) != sorted(name for name in order if name not in optional or name in ran):
        stop(file, last, "an op never runs")
    moves = may_move if plan.get("reordered", False) else set()
    if [name for name in first_runs if name not in moves] != [name for name in order if name in ran and name not in moves]:
        stop(file, last, "first runs are not the reference order")
    for b in graph.get("outputs", []):
        if b not in live:
            stop(file, last, f"output {b} is not in memory at the end")
    lifetimes += [(b, birth, last) for b, birth in live.items()]

    # Every lifetime has exactly one place; two that share a step share no address.
    wanted = sorted([(b, s, e, size[b]) for b, s, e in lifetimes if size[b]] + [("workspace", k, k, w) for k, w in workspaces])
    found = sorted((p["what"], p["from"], p["to"], p["bytes"]) for p in plan["places"] if p["bytes"])
    if wanted != found:
        stop(file, last, f"places differ from lifetimes, first: {next((x for x in zip(wanted, found) if x[0] != x[1]), 'their number')}")
    active = []
    for p in sorted(plan["places"], key=lambda p: p["from"]):
        active = [q for q in active if q["to"] >= p["from"]]
        for q in active:
            if p["offset"] < q["offset"] + q["bytes"] and q["offset"] < p["offset"] + p["bytes"]:
                stop(file, p["from"], f"{p['what']} and {q['what']} overlap")
        active.append(p)

    summary = plan["summary"]
    arena = max((p["offset"] + p["bytes"] for p in plan["places"]), default=0)
    for key, value in (("peak_bytes", peak), ("static_bytes", static), ("arena_bytes", arena), ("recompute_ns", again_time),
                       ("time_ns", max(now, d2h, h2d)), ("offload_bytes", offload_bytes), ("host_bytes", sum(size[b] for b in on_host))):
        if summary[key] != value:
            stop(file, last, f"summary says {key} {summary[key]}, replayed {value}")
    if not on_host and now != time:
        stop(file, last, "waits without copies")
    if static + summary["arena_bytes"] > plan["budget_bytes"]:
        stop(file, last, f"static {static} + arena {summary['arena_bytes']} exceed the budget {plan['budget_bytes']}")
    if plan["bound"]["scope"] == "all" and plan["bound"]["time_ns"] > summary["time_ns"]:
        stop(file, last, "faster than its own lower bound")
    if max(now, d2h, h2d) < time:
        stop(file, last, "ends before its ops can have run")
    print(f"{len(steps)} steps, peak {peak}, {summary['time_ns']} ns, {offload_bytes} bytes offloaded, {100 * (time - again_time and again_time / (time - again_time)):.2f} % again")


for plan_file in sys.argv[2:]:
    replay(plan_file)
