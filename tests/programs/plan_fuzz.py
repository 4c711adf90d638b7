#!/usr/bin/env python3
"""Hostile graphs and models through ckpt-plan: whatever comes in, it answers with exit code 0, 1 or 2, in time, with one
line on standard error when it is 2, and a plan that comes out passes replay_plan.py. Seeded: the same cases every time.

Usage: plan_fuzz.py SOURCE_DIR CKPT_PLAN WORK_DIR [SEED [CASES]]   (exit 1 and a line per broken promise)
"""
import json
import pathlib
import random
import subprocess
import sys

source, program, work = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
cases = int(sys.argv[5]) if len(sys.argv) > 5 else 110
draw = random.Random(seed)
HUGE = ["-1", "0", "9223372036854775807", "9223372036854775808", "4611686018427387904", "1e400", "0.5", '"12"', "null", "true", "[]"]
STRATEGIES = [line.split()[0].replace("_N", "_2").replace(":N", ":2") for line in subprocess.run([program, "--list-strategies"], capture_output=True, text=True, check=True).stdout.splitlines()]


# ---- graphs that are right ----

def step(n):
    """A training step of n forward ops: skips, saved tensors, workspaces, in-place pairs, gradients added to."""
    buffers, ops, values = [], [], []

    def buffer(name, size, kind):
        buffers.append({"name": name, "bytes": size, "kind": kind})
        return name

    for k in range(n):
        reads = draw.sample(values[-4:], min(len(values), draw.choice([1, 1, 1, 2])))
        equal = next(b["bytes"] for b in buffers if b["name"] == reads[0]) if reads and draw.random() < 0.4 else None
        op = {"name": f"f{k}", "phase": "forward", "layer": f"h.{k // 3}.l{k % 3}", "reads": reads,
              "writes": [buffer(f"a{k}", equal if equal is not None else draw.choice([0, 1, 7, 64, 100, 4096]), "activation")],
              "time_ns": draw.choice([0, 1, 5, 100, 3000])}
        if equal is not None:
            op["inplace"] = [[f"a{k}", reads[0]]]
        if draw.random() < 0.3:
            op["writes"].append(buffer(f"s{k}", draw.choice([0, 3, 50]), "saved"))
        if draw.random() < 0.3:
            op["workspace_bytes"] = draw.choice([1, 33, 5000])
        if draw.random() < 0.1:
            op["recompute"] = False
        ops.append(op)
        values.append(f"a{k}")
    gradients = set()
    for k in reversed(range(n)):
        forward = ops[k]
        op = {"name": f"b{k}", "phase": "backward", "layer": forward["layer"], "reads": list(forward["reads"]) + forward["writes"][1:],
              "writes": [], "adds": [], "time_ns": draw.choice([0, 2, 10, 200])}
        if f"g{k}" in gradients:
            op["reads"].append(f"g{k}")
        for b in forward["reads"]:
            g = "g" + b[1:]
            op["adds" if g in gradients else "writes"].append(g)
            if g not in gradients:
                gradients.add(buffer(g, 64, "gradient"))
        ops.append(op)
    graph = {"format": "ckpt-graph/1", "name": "step", "static": [{"name": "weights", "bytes": draw.choice([0, 1, 1000])}],
             "buffers": buffers, "ops": ops, "outputs": [values[-1]] if draw.random() < 0.2 else []}
    if draw.random() < 0.3:
        graph["link"] = {"d2h_bytes_per_s": draw.choice([1, 10**9, 2**63 - 1]), "h2d_bytes_per_s": draw.choice([1, 10**9, 2**63 - 1])}
    return graph


# ---- what is done to them: each says whether it must be refused ----

def any_op(graph, key=None):
    found = [op for op in graph["ops"] if key is None or op.get(key)]
    return draw.choice(found) if found else graph["ops"][0]


def dangling(graph):
    any_op(graph)[draw.choice(["reads", "writes", "adds"])] = ["nobody"]
    return True


def dangling_output(graph):
    graph["outputs"] = ["nobody"]
    return True


def two_writers(graph):
    graph["ops"][-1]["writes"] = graph["ops"][-1]["writes"] + [graph["ops"][0]["writes"][0]]
    return True


def cycle(graph):
    graph["ops"][0]["reads"] = [graph["ops"][draw.randrange(1, len(graph["ops"]) // 2 + 1)]["writes"][0]] if len(graph["ops"]) > 2 else ["a0"]
    return True


def self_loop(graph):
    op = any_op(graph, "writes")
    op["reads"] = op["reads"] + op["writes"][:1]
    return True


def adds_activation(graph):
    graph["ops"][-1]["adds"] = ["a0"]
    return True


def unequal_pair(graph):
    graph["buffers"] += [{"name": "large", "bytes": 5}, {"name": "small", "bytes": 4}]
    graph["ops"] += [{"name": "w", "phase": "forward", "writes": ["large"], "time_ns": 1},
                     {"name": "r", "phase": "forward", "reads": ["large"], "writes": ["small"], "inplace": [["small", "large"]], "time_ns": 1}]
    return True


def twice(graph):
    key = draw.choice(["buffers", "ops"])
    graph[key].append(draw.choice(graph[key]))
    return True


def reversed_order(graph):
    graph["ops"].reverse()
    return None


def without(graph):
    graph["ops"].pop(0)
    return True


def sizes_of_nothing(graph):
    for b in graph["buffers"]:
        b["bytes"] = 0
    return False


def no_time(graph):
    for op in graph["ops"]:
        op["time_ns"] = 0
    return False


def nothing_again(graph):
    for op in graph["ops"]:
        op["recompute"] = False
    return False


def all_again(graph):
    for op in graph["ops"]:
        op["recompute"] = not op.get("adds")
    return False


def vast(graph):
    each = 2**63 // (len(graph["buffers"]) + 3)
    for b in graph["buffers"]:
        b["bytes"] = each if b["bytes"] else 0
    graph["static"], graph["link"] = [], {"d2h_bytes_per_s": draw.choice([1, 2**63 - 1]), "h2d_bytes_per_s": 10**9}
    return None


def slow(graph):
    for op in graph["ops"]:
        op["time_ns"] = 2**63 // (len(graph["ops"]) + 1)
    return None


def one_vast(graph):
    draw.choice(graph["buffers"])["bytes"] = 2**62
    return None


def one_slow(graph):
    any_op(graph)["time_ns"] = 2**62
    return None


def phases(graph):
    for op in graph["ops"]:
        op["phase"] = draw.choice(["forward", "backward", "update", "reduce"])
    return None


def nothing(graph):
    graph["buffers"], graph["ops"], graph["outputs"] = [], [], []
    return False


def one_reader_of_all(graph):
    graph["buffers"] += [{"name": f"x{i}", "bytes": i % 5} for i in range(3000)]
    graph["ops"] += [{"name": "many", "phase": "forward", "writes": [f"x{i}" for i in range(3000)], "time_ns": 3},
                     {"name": "reader", "phase": "backward", "reads": [f"x{i}" for i in range(3000)], "time_ns": 3}]
    return False


def as_it_is(graph):
    return False


CHANGES = [dangling, dangling_output, two_writers, cycle, self_loop, adds_activation, unequal_pair, twice, reversed_order, without,
           sizes_of_nothing, no_time, nothing_again, all_again, vast, slow, one_vast, one_slow, phases, nothing, one_reader_of_all, as_it_is]


# ---- what is done to the text of a file ----

def flip(text):
    data = bytearray(text.encode())
    for _ in range(draw.choice([1, 1, 3, 20])):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def lines(text):
    rows = text.split("\n")
    for _ in range(draw.choice([1, 1, 2, 5])):
        at = draw.randrange(len(rows))
        rows[at:at + 1] = draw.choice([[], [rows[at]] * 2, [rows[draw.randrange(len(rows))]]])
    return "\n".join(rows).encode()


def numbers(text):
    places = [i for i, c in enumerate(text) if c.isdigit() and not text[i - 1].isalnum() and text[i - 1] not in '-."/']
    at = draw.choice(places)
    end = at
    while text[end].isalnum() or text[end] in ".+-":
        end += 1
    return (text[:at] + draw.choice(HUGE) + text[end:]).encode()


def cut(text):
    return text.encode()[:draw.randrange(len(text))]


# ---- one run ----

faults = 0


def complain(arguments, what, stderr):
    global faults
    faults += 1
    kept = work / f"fault-{faults}.json"
    kept.write_bytes((work / "input.json").read_bytes())
    print(f"seed {seed}: ckpt-plan {' '.join(arguments)} [{kept}]: {what}: {stderr[:300]!r}")


def run(data, refused, arguments):
    """`refused`: True it must be, False it must not be, None it may be."""
    (work / "input.json").write_bytes(data)
    plan = work / "plan.json"
    plan.unlink(missing_ok=True)
    try:
        done = subprocess.run([program, *arguments, str(work / "input.json")], capture_output=True, timeout=20, cwd=work)
    except subprocess.TimeoutExpired:
        complain(arguments, "not at an end after 20 s", "")
        return None
    stderr = done.stderr.decode(errors="replace")
    if done.returncode not in (0, 1, 2):
        complain(arguments, f"exit {done.returncode}", stderr)
    elif done.returncode == 2 and (stderr.count("\n") != 1 or done.stdout):
        complain(arguments, f"{stderr.count(chr(10))} lines of refusal, {len(done.stdout)} bytes of answer", stderr)
    elif refused is True and done.returncode != 2:
        complain(arguments, "not refused", stderr)
    elif refused is False and done.returncode == 2 and "%" not in " ".join(arguments) and "flags" not in arguments \
            and "add --link RATE" not in str(stderr) and "but the sequence has" not in str(stderr):
        # a share of nothing is nothing, and there are no flags here
        complain(arguments, "refused", stderr)
    elif done.returncode == 0 and plan.exists() and b"ckpt-graph/1" in data:
        replay = subprocess.run([sys.executable, str(source / "tests/programs/replay_plan.py"), str(work / "input.json"), str(plan)],
                                capture_output=True, text=True)
        if replay.returncode != 0:
            complain(arguments, "replay", replay.stderr)
    return done.returncode


def questions():
    budget = draw.choice([[], ["100%"], ["80%"], ["60%"], ["40%"], ["1"], ["500"], ["9223372036854775807"]])
    budget = ["--budget", *budget] if budget else []
    kind = draw.random()
    if kind < 0.7:
        chosen = draw.choice([*STRATEGIES, "auto", "auto"])
        return [*budget, "--effort", "0", "--strategy", chosen, "-o", "plan.json"]
    if kind < 0.8:
        return [*budget, "--effort", "0", "--explain"]
    if kind < 0.9:
        return [*budget, "--effort", "0", "--sweep", draw.choice(["1", "3"])]
    return [*budget, "--effort", "0", "--compare-strategies", "--json"]


def main():
    work.mkdir(parents=True, exist_ok=True)
    counts = {}
    tiny = json.dumps(step(3)).encode()
    for budget, refused in (("0", True), ("-1", True), ("-5GB", True), ("1e30GB", True), ("9223372036854775808", True), ("nan", True),
                            ("inf", True), ("", True), ("101%", None), ("1e300%", True), ("9223372036854775807", False), ("1", False),
                            ("0.4", True), ("%", True), ("1e-400", True)):
        run(tiny, refused, ["--budget", budget, "--effort", "0"])
    for arguments in (["--effort", "4"], ["--effort", "-1"], ["--effort", "9" * 30], ["--sweep", "0"], ["--sweep", "-3"],
                      ["--sweep", "9" * 30], ["--time-limit", "-1"], ["--time-limit", "nan"], ["--link", "0GB/s"],
                      ["--link", "1e400GB/s"], ["--host-memory", "-1"], ["--maximize", "batch", "--budget", "1GB"]):
        run(tiny, True, arguments)
    models = [(source / f"models/{name}.json").read_text() for name in ("mlp", "mnist-conv", "byte-gpt")]
    for case in range(cases):
        change = CHANGES[case % len(CHANGES)]
        graph = step(draw.choice([1, 2, 4, 9]))
        refused = change(graph)
        text = json.dumps(graph, indent=1)
        if case % 3 != 2:
            code = run(text.encode(), refused, questions())
        else:
            text = draw.choice(models) if draw.random() < 0.4 else text
            code = run(draw.choice([flip, lines, numbers, numbers, cut])(text), None, questions())
        counts[code] = counts.get(code, 0) + 1
    for _ in range(2):
        run(json.dumps(step(4)).encode(), None, ["--effort", "1", "--budget", "60%", "-o", "plan.json"])
    print(f"seed {seed}: exit codes {dict(sorted(counts.items(), key=str))}, {faults} faults")
    return faults > 0


sys.exit(main())
