#!/usr/bin/env python3
"""The expected graph of an ExecutionTrace, computed only from the raw JSON by the rules of docs/reference/imports.md: a
timeline of objects, one step after the other, sharing no code and no tables with the importer.

Usage: execution_expected.py TRACE.json KINETO.json > EXPECTED.json     (the committed expectations were made so)
"""
import json
import sys

trace = json.load(open(sys.argv[1]))
kineto = json.load(open(sys.argv[2]))["traceEvents"]
attribute = {n["id"]: {a["name"]: a["value"] for a in n["attrs"]} for n in trace["nodes"]}
by_id = {n["id"]: n for n in trace["nodes"]}
position = {n["id"]: k for k, n in enumerate(trace["nodes"])}


def up(node):
    """The node and the nodes around it, innermost first."""
    while node:
        yield node
        node = by_id.get(node["ctrl_deps"]) if node["ctrl_deps"] != node["id"] else None


def tensors(side):
    """(storage, bytes up to the last element, argument number, no dimensions, tensor) of each tensor, depth first."""
    def walk(value, shape, stride, k):
        if isinstance(value, list) and len(value) == 6 and isinstance(value[5], str):
            tensor, storage, offset, elements, item, _ = value
            if storage and elements * item:
                last = sum((n - 1) * s for n, s in zip(shape, stride))
                yield storage, (offset + last + 1) * item, k, shape == [], tensor
        elif isinstance(value, list):
            for i, v in enumerate(value):
                yield from walk(v, shape[i] if shape else [], stride[i] if stride else [], k)
    for k, value in enumerate(side["values"]):
        yield from walk(value, side["shapes"][k], side["strides"][k], k)


# The last step: the nodes up to the end of its annotation, or of the optimizer's step.
marks = [n for n in trace["nodes"] if n["name"].startswith("ProfilerStep#")]
ends = [n for n in trace["nodes"] if n["name"].startswith("Optimizer.step#")]
if marks:
    inside = [n for n in trace["nodes"] if n["id"] >= marks[-1]["id"] and position[n["id"]] <= position[marks[-1]["id"]]]
else:
    after = position[ends[-2]["id"]] if len(ends) > 1 else -1
    inside = [n for n in trace["nodes"] if after < position[n["id"]] <= position[ends[-1]["id"]]]
inside.sort(key=lambda n: n["id"])
schema = {n["id"]: attribute[n["id"]].get("op_schema", "") for n in inside}
owner = {}  # node -> the outermost operator around it
for n in inside:
    chain = [m["id"] for m in up(n) if schema.get(m["id"])]
    if chain:
        owner[n["id"]] = chain[-1]
ops = [n for n in inside if owner.get(n["id"]) == n["id"]]


def phase_of(n):
    names = [m["name"] for m in up(n)]
    if any(m.startswith("Optimizer.") for m in names):
        return "update"
    return "backward" if any(m.startswith("autograd::engine::evaluate_function") for m in names) else "forward"


phase = {n["id"]: phase_of(n) for n in ops}
first_backward = next(i for i, n in enumerate(ops) if phase[n["id"]] == "backward")
for before, then in zip(ops, ops[1:]):  # the ones that each backward begins with
    if phase[then["id"]] == "backward" and phase[before["id"]] == "forward" and before["name"] == "aten::ones_like":
        phase[before["id"]] = "backward"
roots = [n["id"] for n in ops if n["name"] == "aten::ones_like" and phase[n["id"]] == "backward"]
forward_ids = [n["id"] for n in ops if phase[n["id"]] == "forward"]
late = any(n["name"].startswith("Optimizer.zero_grad#") and forward_ids[0] < n["id"] < ops[first_backward]["id"]
           for n in inside)


def written_arguments(n):
    """Argument numbers with "!" in the schema; batch norm's statistics too, when it trains."""
    text = schema[n["id"]]
    if not text:
        return set()
    body, depth, parts = text[text.index("(") + 1:], 0, [""]
    for c in body:
        depth += (c in "([") - (c in ")]")
        if depth < 0:
            break
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    parts = [p.strip() for p in parts if p.strip() not in ("", "*")]
    name = [p.split("=")[0].split()[-1] for p in parts]
    found = {k for k, p in enumerate(parts) if "!" in p}
    values = n["inputs"]["values"]
    trains = any(name[k] in ("training", "train") and values[k] is True for k in range(len(values)))
    if trains and "backward" not in n["name"]:
        found |= {k for k, m in enumerate(name) if m in ("running_mean", "running_var")}
    return found


class Memory:
    """One value at an address."""

    def __init__(self, born, size):
        self.born, self.size, self.last, self.tensors = born, size, born, set()
        self.phases_read, self.phases_written, self.copies = set(), set(), 0
        self.parameter = self.given_out = self.loss = False


here, lives, uses, scratch, writes_to = {}, [], {}, {}, {}
for i, op in enumerate(ops):
    given = {}
    for storage, end, _, no_shape, tensor in tensors(op["inputs"]):
        memory = here.get(storage)
        if memory and memory.born >= 0 and no_shape and memory.size > end and tensor not in memory.tensors:
            given.setdefault(storage, None)  # a Python number at the address of something that has gone
            continue
        if memory is None or (memory.born >= 0 and end > memory.size):
            memory = here[storage] = Memory(-1, end)
            lives.append(memory)
        if memory.born < 0:
            memory.size = max(memory.size, end)
        memory.tensors.add(tensor)
        given[storage] = memory
    changed, own = set(), {}
    for n in (m for m in inside if owner.get(m["id"]) == op["id"]):
        marked = written_arguments(n)
        for storage, end, k, _, tensor in list(tensors(n["inputs"])) + [t + () for t in tensors(n["outputs"])]:
            if storage not in given:
                own.setdefault(storage, Memory(i, end))
                own[storage].size = max(own[storage].size, end)
                own[storage].tensors.add(tensor)
        changed |= {s for s, _, k, _, _ in tensors(n["inputs"]) if k in marked and given.get(s)}
    out = list(tensors(op["outputs"]))
    for storage, _, _, _, tensor in out:
        (own.get(storage) or given.get(storage) or here[storage]).tensors.add(tensor)
        if storage in own:
            own[storage].given_out = True
    here.update(own)
    lives += own.values()
    accumulates = any(m["name"] == "torch::autograd::AccumulateGrad" for m in up(op))
    for storage, *_ in out:
        here[storage].parameter |= accumulates
    if not own and not changed and (out or not any(given.values())):
        continue  # views
    uses[i] = {id(m): m for m in given.values() if m}
    writes_to[i] = {id(given[s]) for s in changed}
    for memory in uses[i].values():
        memory.last = i
        memory.phases_read.add(phase[op["id"]])
        memory.loss |= op["id"] in roots
        if id(memory) in writes_to[i]:
            memory.phases_written.add(phase[op["id"]])

kept = [i for i in range(len(ops)) if i in uses]
static = {}
for memory in lives:
    if memory.born < 0 and memory.phases_read:
        computes = memory.phases_read & {"forward", "backward"}
        role = ("gradients" if "backward" in memory.phases_written else
                "weights" if "update" in memory.phases_written and computes else
                "statistics" if "forward" in memory.phases_written else "inputs" if computes else "optimizer")
        static[role] = static.get(role, 0) + memory.size
    elif memory.born >= 0 and memory.parameter and late:
        static["gradients"] = static.get("gradients", 0) + memory.size

# Memory per op if everything is kept until its last use. A write in place needs no second buffer.
arena = 0
for i in kept:
    live = 0
    for memory in lives:
        if memory.born < 0 or (memory.parameter and late):
            continue
        if not memory.given_out and not memory.phases_read:
            live += memory.size if memory.born == i else 0  # scratch of its op
        elif memory.born <= i <= (len(ops) if memory.parameter or memory.loss else memory.last):
            live += memory.size
    arena = max(arena, live)

event = {e["args"]["Record function id"]: e for e in kineto
         if e.get("cat") == "cpu_op" and e["ph"] == "X" and "Record function id" in e["args"]}
duration = [event[attribute[ops[i]["id"]]["rf_id"]]["dur"] for i in kept]
begin = event[attribute[forward_ids[0]]["rf_id"]]["ts"]
last = event[attribute[ops[kept[-1]]["id"]]["rf_id"]]
level = peak = 0
for e in sorted((e for e in kineto if e["name"] == "[memory]"), key=lambda e: e["ts"]):
    if begin <= e["ts"] <= last["ts"] + last["dur"]:
        level += e["args"]["Bytes"]
        peak = max(peak, level)


def moved(op):
    def size(side):
        def walk(value):
            if isinstance(value, list) and len(value) == 6 and isinstance(value[5], str):
                return value[3] * value[4] if value[1] else 0
            return sum(map(walk, value)) if isinstance(value, list) else 0
        return sum(map(walk, op[side]["values"]))
    return size("inputs") + size("outputs")


random = ("aten::bernoulli_", "aten::native_dropout")
print(json.dumps({
    "ops": [f"{ops[i]['name']}#{ops[i]['id']}" for i in kept],
    "phases": "".join(phase[ops[i]["id"]][0] for i in kept),
    "once": [f"{ops[i]['name']}#{ops[i]['id']}" for i in kept if phase[ops[i]["id"]] == "forward" and (
        any(m.born < 0 and id(m) in writes_to[i] for m in uses[i].values()) or
        any(m["name"] in random for m in inside if owner.get(m["id"]) == ops[i]["id"]))],
    "static": static,
    "arena_bytes": arena,
    "pytorch_peak_bytes": peak,
    "time_ns": [round(d * 1000) for d in duration],
    "moved_bytes": [moved(ops[i]) for i in kept],
}, indent=0))
