#!/usr/bin/env python3
"""Whether Netron can open a file that ckpt-graph --format netron wrote, and whether it shows the graph.

Usage: netron_check.py graph.json netron.json [plan.json]

What is asked for is what Netron's reader of ONNX JSON does (source/onnx.js, class onnx.JsonReader and the classes it feeds, of
Netron 9.3): which members make a file one of its own, which type each has, numbers of data types and attribute types that it
knows, texts in base64; and what ONNX asks for beside it (docs/IR.md: one writer per value, writers before readers).
"""
import base64
import json
import sys

graph, model = (json.load(open(name)) for name in sys.argv[1:3])
plan = json.load(open(sys.argv[3])) if len(sys.argv) > 3 else None


def need(condition, *words):
    if not condition:
        sys.exit("netron_check: " + " ".join(str(word) for word in words))


def text(value, what):
    need(isinstance(value, str) and value != "", what, "is no text:", value)
    return value


# JsonReader.open
need("framework" not in model and "graph" in model and "ir_version" in model, "no file of Netron's")
need(isinstance(model["ir_version"], int) and model["ir_version"] >= 10, "ir_version: nodes have metadata from 10 on")
domains = {entry["domain"] for entry in model["opset_import"] if isinstance(entry["version"], int)}
g = model["graph"]
text(g["name"], "name of the graph")
INT, STRING = 2, 3
ELEMENT_BYTES = {1: 4, 2: 1, 6: 4, 16: 2}  # float32, uint8, int32, bfloat16


def properties(entries):
    need(all(set(entry) == {"key", "value"} and isinstance(entry["value"], str) for entry in entries), "metadata", entries)
    need(len({entry["key"] for entry in entries}) == len(entries), "metadata has a key twice", entries)
    return {entry["key"]: entry["value"] for entry in entries}


def attributes(node):
    found = {}
    for attribute in node["attribute"]:
        name = text(attribute["name"], "attribute")
        need(name not in found, node["name"], "has attribute", name, "twice")
        if attribute["type"] == INT:
            found[name] = int(text(attribute["i"], name))  # BigInt("12"); beyond 53 bits it must be a text
        elif attribute["type"] == STRING:
            found[name] = base64.b64decode(attribute["s"], validate=True).decode("ascii")  # atob
        else:
            sys.exit(f"netron_check: attribute {name} of type {attribute['type']}")
    return found


# Values: each with a type that Netron has, in value_info or the graph's outputs, once.
values = {}
for entry in g["value_info"] + g["output"]:
    name = text(entry["name"], "value")
    need(name not in values, "value", name, "stands there twice")
    tensor = entry["type"]["tensor_type"]
    dims = [dim["dim_value"] for dim in tensor["shape"]["dim"]]
    need(all(isinstance(dim, int) and dim >= 0 for dim in dims), name, "has shape", dims)
    size = ELEMENT_BYTES[tensor["elem_type"]]
    for dim in dims:
        size *= dim
    values[name] = (size, text(entry["doc_string"], "doc_string"))
need([entry["name"] for entry in g["output"]] == graph["outputs"], "outputs differ")

buffers = {buffer["name"]: buffer for buffer in graph["buffers"]}
need(set(values) == set(buffers), "values are not the buffers")
for name, (size, words) in values.items():
    held, kind = buffers[name]["bytes"], buffers[name].get("kind", "activation")
    need(words.split(",")[0] == f"{held} bytes" and kind in words, name, "is described as", words)
    need(size == held or (size < held and held % 64 == 0 and held - size < 64), name, "holds", size, "of", held, "bytes")

runs, decisions = {}, {}
for step in plan["steps"] if plan else []:
    if "run" in step:
        runs[step["run"]] = runs.get(step["run"], 0) + 1
if plan:
    decisions = {layer: decision for layer, decision in plan["layers"].items()}

written = set()
need(len(g["node"]) == len(graph["ops"]), len(g["node"]), "nodes for", len(graph["ops"]), "ops")
for node, op in zip(g["node"], graph["ops"]):
    need(text(node["name"], "name") == op["name"], "node", node["name"], "for op", op["name"])
    text(node["op_type"], "op_type")
    need(node["domain"] in domains, "domain", node["domain"], "is not imported")
    need(node["input"] == op.get("reads", []) + op.get("adds", []), node["name"], "reads", node["input"])
    need(node["output"] == op.get("writes", []), node["name"], "writes", node["output"])
    need(written.issuperset(node["input"]), node["name"], "reads what nobody has written")
    need(written.isdisjoint(node["output"]), node["name"], "writes what is written")
    written.update(node["output"])
    shown = attributes(node)
    wanted = {"phase": op["phase"], "time_ns": op["time_ns"], "writes_bytes": sum(buffers[b]["bytes"] for b in node["output"])}
    if op.get("workspace_bytes", 0) > 0:
        wanted["workspace_bytes"] = op["workspace_bytes"]
    if "variants" in op:
        wanted["ways"] = 1 + len(op["variants"])
    if runs.get(op["name"], 0) > 0:
        wanted["runs"] = runs[op["name"]]
    if op["phase"] == "forward" and op.get("layer", op["name"]) in decisions:
        wanted["decision"] = decisions[op.get("layer", op["name"])]
    need(shown == wanted, node["name"], "has", shown, "wanted", wanted)
    need(properties(node["metadata_props"]).get("layer", "") == op.get("layer", ""), node["name"], "is of another layer")
props = properties(model["metadata_props"])
for static in graph["static"]:
    need(props.get(static["name"]) == f"{static['bytes']} bytes", "static block", static["name"], "is missing")
if plan:
    need(props["plan"] == plan["solver"]["name"] and props["verdict"] == plan["verdict"], "another plan", props)
