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
    """Argument numbers with "!" in the schema, and those of batch norm's statistics when it trains."""
    text = schema[n["id"]]
    if not text:
        return set(), set()
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
    running = set()
    if trains and "backward" not in n["name"]:
        running = {k for k, m in enumerate(name) if m in ("running_mean", "running_var")}
    return found | running, running


class Memory:
    """One value at an address."""

    def __init__(self, born, size):
        self.born, self.size, self.last, self.tensors = born, size, born, set()
        self.phases_read, self.phases_written, self.last_write = set(), set(), -1
        self.parameter = self.given_out = self.loss = False

    def stays(self):
        return self.given_out or self.phases_read


def visit(n, i, given, own, addresses):
    """The storages that a node and those inside it have. `own`: the op's memory at each of them now; `addresses`: all that
    it had there, one after the other. An output that nothing inside the node had, nor its inputs, is new."""
    def see(storage, end, tensor, new):
        if storage in given:
            return
        if new or storage not in own:
            own[storage] = Memory(i, end)
            addresses.setdefault(storage, []).append(own[storage])
        own[storage].size = max(own[storage].size, end)
        own[storage].tensors.add(tensor)
    seen = set()
    for storage, end, _, _, tensor in tensors(n["inputs"]):
        see(storage, end, tensor, False)
        seen.add(storage)
    for m in (m for m in inside if m["ctrl_deps"] == n["id"] and owner.get(m["id"]) == owner[n["id"]] and m is not n):
        seen |= visit(m, i, given, own, addresses)
    outputs = list(tensors(n["outputs"]))
    for storage, end, _, _, tensor in outputs:
        see(storage, end, tensor, storage not in seen)
        seen.add(storage)
    return seen


here, lives, uses, scratch, writes_to, statistic = {}, [], {}, {}, {}, {}
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
    changed, own, addresses = set(), {}, {}
    visit(op, i, given, own, addresses)
    for n in (m for m in inside if owner.get(m["id"]) == op["id"]):
        marked, _ = written_arguments(n)
        changed |= {s for s, _, k, _, _ in tensors(n["inputs"]) if k in marked and given.get(s)}
    running = written_arguments(op)[1]
    statistic[i] = {id(given[s]) for s, _, k, _, _ in tensors(op["inputs"]) if k in running and given.get(s)}
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
            memory.last_write = i if phase[op["id"]] != "update" else memory.last_write
    scratch[i] = addresses

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

event = {e["args"]["Record function id"]: e for e in kineto
         if e.get("cat") == "cpu_op" and e["ph"] == "X" and "Record function id" in e["args"]}
begin = event[attribute[forward_ids[0]]["rf_id"]]["ts"]
last = event[attribute[ops[kept[-1]]["id"]]["rf_id"]]
level = peak = 0
for e in sorted((e for e in kineto if e["name"] == "[memory]"), key=lambda e: e["ts"]):
    if begin <= e["ts"] <= last["ts"] + last["dur"]:
        level += e["args"]["Bytes"]
        peak = max(peak, level)


def peak_within(i):
    """The most that the recorder saw allocated during an op, over what was there before."""
    span = event[attribute[ops[i]["id"]]["rf_id"]]
    level = most = 0
    for e in sorted((e for e in kineto if e["name"] == "[memory]" and e["tid"] == span["tid"]), key=lambda e: e["ts"]):
        if span["ts"] <= e["ts"] <= span["ts"] + span["dur"]:
            level += e["args"]["Bytes"]
            most = max(most, level)
    return most


def workspace_without_events(i):
    """At each address of the op the largest of its values that are gone after it."""
    return sum(max([m.size for m in values if not m.stays()], default=0) for values in scratch[i].values())


def workspace(i):
    return max(0, peak_within(i) - sum(m.size for values in scratch[i].values() for m in values if m.stays()))


def is_once(i):
    """Whether recomputing the op would give something else, or change again what outlives the step."""
    old = [m for m in uses[i].values() if m.born < 0 and id(m) not in statistic[i]]
    return any(id(m) in writes_to[i] or m.last_write > i for m in old)


def draws(i):
    return any(m["name"] in ("aten::bernoulli_", "aten::native_dropout") for m in inside if owner.get(m["id"]) == ops[i]["id"])


STATE = 5056  # bytes of torch.get_rng_state()
stateful = {i for i in kept if phase[ops[i]["id"]] == "forward" and draws(i) and not is_once(i)}


def keep_all(workspace):
    """The most memory of an op if everything is kept until its last use. A write in place needs no second buffer."""
    most = 0
    for i in kept:
        stay = [m for m in lives if m.born >= 0 and m.stays() and not (m.parameter and late)]
        end = {id(m): len(ops) if m.parameter or m.loss else m.last for m in stay}
        live = sum(m.size for m in stay if m.born <= i <= end[id(m)])
        most = max(most, live + workspace(i) + (STATE if i in stateful else 0))
    return most


def name(i):
    return f"{ops[i]['name']}#{ops[i]['id']}"


def with_states(value, of_state):
    """A list of `value` of each op, with `of_state` before the ops whose generator's state an op of its own writes."""
    return [x for i in kept for x in ([of_state(i)] if i in stateful else []) + [value(i)]]


def moved(op):
    def size(side):
        def walk(value):
            if isinstance(value, list) and len(value) == 6 and isinstance(value[5], str):
                return value[3] * value[4] if value[1] else 0
            return sum(map(walk, value)) if isinstance(value, list) else 0
        return sum(map(walk, op[side]["values"]))
    return size("inputs") + size("outputs")


ranges = [e for e in kineto if e.get("ph") == "X" and (
    e.get("cat") == "user_annotation" and not e["name"].startswith(("ProfilerStep#", "Optimizer.")) or
    e.get("cat") == "python_function" and e["name"].startswith("nn.Module: "))]


def layer(i):
    """The innermost module or annotation around a forward op, else the op."""
    if phase[ops[i]["id"]] != "forward":
        return ""
    at = event[attribute[ops[i]["id"]]["rf_id"]]["ts"]
    around = [e for e in ranges if e["ts"] <= at <= e["ts"] + e["dur"]]
    return min(around, key=lambda e: e["dur"])["name"].removeprefix("nn.Module: ") if around else name(i)


print(json.dumps({
    "ops": with_states(name, lambda i: name(i) + "/state"),
    "phases": "".join(with_states(lambda i: phase[ops[i]["id"]][0], lambda i: "f")),
    "once": [n for n in with_states(lambda i: name(i) if phase[ops[i]["id"]] == "forward" and is_once(i) else None,
                                    lambda i: name(i) + "/state") if n],
    "layers": with_states(layer, layer),
    "workspace_bytes": with_states(workspace, lambda i: 0),
    "static": static,
    "arena_bytes": keep_all(workspace),
    "arena_bytes_without_events": keep_all(workspace_without_events),
    "pytorch_peak_bytes": peak,
    "time_ns": with_states(lambda i: round(event[attribute[ops[i]["id"]]["rf_id"]]["dur"] * 1000), lambda i: 0),
    "moved_bytes": with_states(lambda i: moved(ops[i]), lambda i: 0),
}, indent=0))
