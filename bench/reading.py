#!/usr/bin/env python3
"""What reading, lowering and writing cost: a chain of N ops with unequal sizes, and a small model of nearly 10^6 layers,
through every program that reads and writes them. Planning itself is left out: the plan keeps all.

    bench/reading.py [PROGRAMS [OPS]]     default: build/release/bin 1000000
"""
import json
import os
import resource
import sys
import tempfile

COMMANDS = [
    ("ckpt-plan -s keep-all -b 100% -o p.json --trace t.json g.json", "p.json t.json"),
    ("ckpt-graph g.json -o again.json", "again.json"),
    ("ckpt-graph g.json -o g.svg", "g.svg"),
    ("ckpt-graph deep.json -o lowered.json", "lowered.json"),
    ("ckpt-view p.json -o p.svg", "p.svg"),
    ("ckpt-view p.json -o p.html", "p.html"),
    ("ckpt-view t.json -o t.svg", "t.svg"),
    ("ckpt-compare p.json p.json", ""),
    ("ckpt-compare t.json t.json", ""),
]


def chain(count):
    """`count` forward ops, then their backward."""
    a = [{"name": f"a{i}", "bytes": 512 + 64 * (i % 7), "kind": "activation"} for i in range(count)]
    g = [{"name": f"g{i}", "bytes": 512, "kind": "gradient"} for i in reversed(range(count))]
    f = [{"name": f"f{i}", "phase": "forward", "reads": [f"a{i - 1}"] if i else [], "writes": [f"a{i}"],
          "time_ns": 100 + i % 13, "workspace_bytes": 64} for i in range(count)]
    b = [{"name": f"b{i}", "phase": "backward", "reads": [f"a{i}"] + ([f"g{i + 1}"] if i + 1 < count else []),
          "writes": [f"g{i}"], "time_ns": 200, "workspace_bytes": 64} for i in reversed(range(count))]
    return {"format": "ckpt-graph/1", "name": "chain", "static": [], "buffers": a + g, "ops": f + b, "outputs": []}


def deep():
    """99^3 layers: blocks in blocks in blocks."""
    layers = [{"name": "r", "op": "relu"}]
    for name in "cba":
        layers = [{"repeat": 99, "name": name, "layers": layers}]
    ends = [{"name": "out", "op": "linear", "features": 8}, {"name": "loss", "op": "mse", "in": ["out", "y"]}]
    return {"format": "ckpt-model/1", "name": "deep", "inputs": [{"name": n, "shape": [2, 8]} for n in "xy"],
            "layers": [{"name": "in", "op": "linear", "in": ["x"], "features": 8}] + layers + ends}


def run(programs, command):
    """(exit status, user seconds, largest resident MB)"""
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        name, *rest = command.split()
        os.execv(os.path.join(programs, name), [name] + rest)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime, usage.ru_maxrss / 1000


def main():
    programs = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release/bin")
    ops = int(sys.argv[2]) if len(sys.argv) > 2 else 1000000
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        writer = os.fork()  # the memory of a process counts as that of its children until they start a program
        if writer == 0:
            for name, content in (("g.json", chain(ops // 2)), ("deep.json", deep())):
                with open(name, "w", encoding="utf-8") as file:
                    file.write(json.dumps(content))
            os._exit(0)
        os.waitpid(writer, 0)
        print("| command | user seconds | MB | MB written |\n|---|---|---|---|")
        for command, files in COMMANDS:
            code, seconds, megabytes = run(programs, command)
            written = sum(os.path.getsize(file) for file in files.split() if os.path.exists(file)) / 1e6
            print(f"| `{command}` | {seconds:.1f} | {megabytes:.0f} | {f'{written:.0f}' if files else ''} |"
                  + (f" exit {code}" if code else ""), flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main()
