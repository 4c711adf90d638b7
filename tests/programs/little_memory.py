"""Programs with less and less address space (RLIMIT_AS): it does its work, or says in one line that memory is refused,
with exit code 3 and no file left. Where the system cannot even load it is found by bisection, and so is the least limit that
is enough; between the two and above them limits are tried.

    little_memory.py SOURCE_DIR BIN_DIR WORK_DIR [FACTOR]     tried limits lie FACTOR apart (default: 1.6)
"""

import os
import re
import resource
import shutil
import subprocess
import sys

SOURCE, BIN, WORK = (os.path.abspath(path) for path in sys.argv[1:4])
FACTOR = float(sys.argv[4]) if len(sys.argv) > 4 else 1.6
PLENTY = 2 << 30
TINY = "--set batch=4 --set tokens=32 --set hidden=32 --set blocks=1 --set heads=2 --threads".split()
MODEL = f"{SOURCE}/models/byte-gpt.json"
INPUT = f"{WORK}/input"
IMPORTS = f"{SOURCE}/tests/imports"
SNAPSHOT = f"{IMPORTS}/snapshot_training.pickle"

# (command, its files): "=" before a file whose bytes are always the same, but for how long planning took.
COMMANDS = [
    (["ckpt-graph", f"{SOURCE}/models/resnet50.json", "-o", "a.svg"], "=a.svg"),
    (["ckpt-graph", *TINY, "1", MODEL, "--plan", f"{INPUT}/plan.json", "-o", "a.png"], "a.png"),
    (["ckpt-graph", *TINY, "1", MODEL, "-o", "a.pdf"], "a.pdf"),
    (["ckpt-graph", f"{SOURCE}/models/resnet50.json", "-o", "a.dot"], "=a.dot"),
    (["ckpt-graph", f"{SOURCE}/models/resnet50.json", "-o", "a.json"], "=a.json"),
    *[(["ckpt-view", f"{INPUT}/trace.json", f"{INPUT}/measured.json", "-o", f"a.{form}"], f"=a.{form}")
      for form in ("svg", "png", "pdf", "html", "json", "txt")],
    (["ckpt-view", f"{INPUT}/sweep.json", "-o", "a.png"], "=a.png"),
    *[(["ckpt-compare", f"{INPUT}/plan.json", f"{INPUT}/other.json", "-o", f"a.{form}"], f"=a.{form}")
      for form in ("html", "json", "md")],
    (["ckpt-plan", *TINY, "1", "--budget", "75%", MODEL, "-o", "a.json", "--trace", "t.json"], "=a.json t.json"),
    (["ckpt-train", *TINY, "1", "--plan", f"{INPUT}/plan.json", "--steps", "2", MODEL, "--save", "a.state"], "a.state"),
    (["ckpt-profile", *TINY, "2", "--steps", "3", MODEL, "-o", "a.json"], "a.json"),
    (["ckpt-profile", "--import", SNAPSHOT, "-o", "a.json"], "=a.json"),
    (["ckpt-profile", "--import", f"{IMPORTS}/kineto_training.json", "-o", "a.json"], "=a.json"),
    (["ckpt-profile", "--import", f"{IMPORTS}/execution_cnn.json", "--times", f"{IMPORTS}/execution_cnn.kineto.json", "-o", "a.json"],
     "=a.json"),
]
RECORDED = ["ckpt-profile", "-o", "a.json", "--", f"{BIN}/victim", "init", "train"]
failures = []


def run(command, limit, folder):
    """(exit code, standard error, bytes of the files it made)."""
    def restrict():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    done = subprocess.run([os.path.join(BIN, command[0]), *command[1:]], cwd=folder, preexec_fn=restrict, timeout=600,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    made = {name: open(f"{folder}/{name}", "rb").read() for name in os.listdir(folder)}
    return done.returncode, done.stderr.decode(errors="replace"), made


def least(low, high, enough):
    """The least limit that is enough within 6 %, if more is never worse."""
    while high > 1.06 * low:
        middle = int((low * high) ** 0.5)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def alike(a, b):
    """But for the seconds of a plan's solver."""
    return re.sub(rb'"seconds": *[0-9.e+-]+', b"", a) == re.sub(rb'"seconds": *[0-9.e+-]+', b"", b)


def sweep(command, files, refusal=3):
    """`refusal`: the exit code where memory is refused."""
    folder = f"{WORK}/run"
    same = {name[1:] for name in files.split() if name.startswith("=")}
    names = {name.lstrip("=") for name in files.split()}
    seen = {}

    def ask(limit):
        if limit not in seen:
            seen[limit] = run(command, limit, folder)
        return seen[limit]

    usual = ask(PLENTY)
    if usual[0] != 0 or set(usual[2]) != names:
        failures.append(f"{command}: exit {usual[0]}, {list(usual[2])}: {usual[1]}")
        return
    loads = least(1 << 20, PLENTY, lambda limit: ask(limit)[0] in (0, refusal) or "shared libraries" not in ask(limit)[1]
                  and ask(limit)[0] > 0)
    enough = least(loads, PLENTY, lambda limit: ask(limit)[0] == 0)
    limit = loads
    while limit < 1.5 * enough:
        ask(int(limit))
        limit *= FACTOR
    refused = 0
    for limit, (code, said, made) in sorted(seen.items()):
        if command == RECORDED and code == run(command[4:], limit, folder)[0]:  # the program's own end, trace or not
            good = made or "memory" in said
        elif code == 0:
            good = set(made) == names and all(alike(made[name], usual[2][name]) for name in same)
        elif code == refusal and "memory" in said:
            good = not made and said.count("\n") == 1
            good = good and (said.startswith(f"{command[0]}: ") or refusal != 3)
            refused += good
        else:
            good = limit < loads or "libgomp: " in said  # OpenMP's runtime, as it is loaded or makes threads
        if not good:
            failures.append(f"{' '.join(command)}\n    at {limit} bytes: exit {code}, files {sorted(made)}: {said[:600]}")
    print(f"{command[0]} {files}: loads at {loads >> 10} KiB, enough at {enough >> 10} KiB, "
          f"refused {refused} of {len(seen)}: {next((s for c, s, _ in seen.values() if c == refusal), '-').strip()}", flush=True)


def make_inputs():
    shutil.rmtree(INPUT, ignore_errors=True)
    os.makedirs(INPUT)
    for command in (["ckpt-plan", *TINY, "1", "--budget", "75%", "-o", "plan.json", "--trace", "trace.json", MODEL],
                    ["ckpt-plan", *TINY, "1", "--budget", "85%", "-o", "other.json", MODEL],
                    ["ckpt-plan", *TINY, "1", "--sweep", "5", "-o", "sweep.json", MODEL],
                    ["ckpt-train", *TINY, "1", "--plan", "plan.json", "--steps", "1", "--trace", "measured.json", MODEL]):
        subprocess.run([f"{BIN}/{command[0]}", *command[1:]], cwd=INPUT, check=True, stdout=subprocess.DEVNULL)


make_inputs()
for each in COMMANDS:
    sweep(*each)
library = os.path.join(os.path.dirname(BIN), "lib")
if shutil.which("cc") and os.path.exists(f"{library}/libckpt.so"):
    example = f"{INPUT}/example"  # its exit code is 1, its line the library's message
    subprocess.run(["cc", f"{SOURCE}/examples/plan.c", f"-I{SOURCE}/include", f"-L{library}", f"-Wl,-rpath,{library}", "-lckpt",
                    "-o", example], check=True)
    sweep([example], "", 1)
if os.path.exists(f"{BIN}/libcupti_double.so"):
    os.environ["CKPT_CUPTI"] = f"{BIN}/libcupti_double.so"
    sweep(RECORDED, "a.json")
print("\n".join(failures))
sys.exit(1 if failures else 0)
