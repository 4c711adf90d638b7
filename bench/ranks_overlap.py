#!/usr/bin/env python3
"""How much of the exchange of gradients two ranks on one machine hide behind backward.

Usage: ranks_overlap.py BIN [--steps 8] [--rounds 5] [--bucket 4MiB] [--rate 0,4gbit] model.json[:VAR=N,...]
BIN is the folder of the programs. Two replicas of one thread each, keep-all, synthetic data. A rate of 0 is shared memory,
where the copying itself takes a core's time. Another rate is a network that takes none: TCP on a loopback of their own that
lets so many bits a second pass, both ranks' together (needs root, unshare, ip and tc). Rows, medians over the rounds, in turns:

  behind        without --overlap: a bucket moves when backward is over
  asked         --overlap and CKPT_RANKS_PROGRESS=0: a bucket is started when it is complete, and moves when the step asks for it
  moved         --overlap: the thread that moves messages does so meanwhile

  step          ckpt-train's median step, and how far the rounds lie apart, (most - least) / median / 2
  exchanging    of that in the ops of buckets, sums included, in the last step of rank 0
  predicted     the plan's step, from a profile that two ckpt-profile took at once, at half the rate for each direction
  hidden        of `behind`'s time in the ops of buckets; and of the step, what is gained over `behind` relative to the same
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("bin")
parser.add_argument("model")
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--bucket", default="4MiB")
parser.add_argument("--rate", default="0,4gbit")
args = parser.parse_args()
BIN = os.path.abspath(args.bin)
PATH, _, SETTINGS = args.model.partition(":")
OPTIONS = [word for setting in SETTINGS.split(",") if setting for word in ("--set", setting)]
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
WAYS = {"behind": ([], "0"), "asked": (["--overlap"], "0"), "moved": (["--overlap"], "1")}


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode != 0:
        sys.exit(f"ranks_overlap.py: {' '.join(words)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def bytes_per_s(rate):
    return f"{float(rate[:-4]) * UNITS[rate[-4:]] / 16 / 1e6:.3f}MB/s"  # of one direction


def profile(work):
    both = [subprocess.Popen([f"{BIN}/ckpt-profile", "-t", "1", *OPTIONS, "-o", f"{work}/profile.{i}.json", PATH],
                             stderr=subprocess.DEVNULL) for i in range(2)]
    if any(one.wait() != 0 for one in both):
        sys.exit("ranks_overlap.py: ckpt-profile failed")
    return f"{work}/profile.0.json"


def plan(work, way, rate, measured):
    path = f"{work}/{way}.json"
    network = ["--network", bytes_per_s(rate)] if rate != "0" else []
    run(f"{BIN}/ckpt-plan", "-t", "1", "--replicas", "2", "--bucket", args.bucket, "--strategy", "keep-all", *network,
        *WAYS[way][0], "--profile", measured, *OPTIONS, "-o", path, PATH)
    with open(path, encoding="utf-8") as file:
        return json.load(file)["summary"]["time_ns"] / 1e6


def train(work, way, rate):
    mpirun = ["mpirun", "-n", "2", "--bind-to", "none", "-x", f"CKPT_RANKS_PROGRESS={WAYS[way][1]}"]
    command = [f"{BIN}/ckpt-train", "--plan", f"{work}/{way}.json", "--steps", str(args.steps), "--no-digest", "--json",
               "--trace", f"{work}/trace.json", *OPTIONS, PATH]
    if rate == "0":
        said = run(*mpirun, *command)
    else:
        link = f"ip link set lo up && tc qdisc add dev lo root tbf rate {rate} burst 512kb latency 1s && exec \"$@\""
        said = run("unshare", "-n", "sh", "-c", link, "sh", *mpirun, "--mca", "btl", "tcp,self", "--mca",
                   "btl_tcp_if_include", "lo", *command)
    spent = 0
    with open(sorted(glob.glob(f"{work}/trace*.json"))[0], encoding="utf-8") as file:
        for event in json.load(file)["events"]:
            spent += event["end_ns"] - event["start_ns"] if event["name"].startswith("@bucket") else 0
    return json.loads(said)["step_ns"] / 1e6, spent / 1e6


with tempfile.TemporaryDirectory() as folder:
    from_both = profile(folder)
    print("| rate | | step | exchanging | hidden | gained | predicted |\n|---|---|---|---|---|---|---|")
    for rate in args.rate.split(","):
        predicted = {way: plan(folder, way, rate, from_both) for way in WAYS}
        found = {way: [] for way in WAYS}
        for _ in range(args.rounds):
            for way in WAYS:
                found[way].append(train(folder, way, rate))
        step = {way: statistics.median(row[0] for row in rows) for way, rows in found.items()}
        spent = {way: statistics.median(row[1] for row in rows) for way, rows in found.items()}
        for way, rows in found.items():
            spread = (max(row[0] for row in rows) - min(row[0] for row in rows)) / step[way] / 2
            hidden = "" if way == "behind" else f"{100 * (1 - spent[way] / spent['behind']):.0f} %"
            gained = "" if way == "behind" else f"{100 * (step['behind'] - step[way]) / spent['behind']:.0f} %"
            told = "" if rate == "0" or way == "asked" else f"{predicted[way]:.1f} ms"
            name = "shared memory" if rate == "0" else rate
            print(f"| {name} | {way} | {step[way]:.1f} ms ±{100 * spread:.0f} % | {spent[way]:.1f} ms | {hidden} | "
                  f"{gained} | {told} |", flush=True)
