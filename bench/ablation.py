#!/usr/bin/env python3
"""The lines of bench_ablation as a Markdown table: what plans lose, and what planning takes, without each part of `auto`.

Compared are plans of the same graph and budget, with all parts and without one, over the graphs and budgets in which the
part began at all. Best known: the fastest plan of that graph and budget in the whole input.

Usage: bench/ablation.py LINES...
"""
import statistics
import sys
from collections import defaultdict

plans = defaultdict(dict)  # (graph, share) -> part left out -> (verdict, time, bound, seconds)
for path in sys.argv[1:]:
    with open(path) as f:
        for line in f:
            graph, _, share, part, verdict, time, bound, seconds = line.rstrip("\n").split("\t")
            if share != "none":
                plans[graph, share][part] = (verdict, int(time), int(bound), float(seconds))
plans = {key: variants for key, variants in plans.items() if len(variants) > 1}
best = {key: min((v[1] for v in variants.values() if v[0] == "fits"), default=0) for key, variants in plans.items()}


def percent(ratios):
    return f"{100 * statistics.mean(ratios):.2f} %, {100 * max(ratios):.2f} %"


print("| left out | plans | of these lost | slower, faster | time over best known: mean, most | gap: mean with it, without it | CPU seconds over those with it: median, of all |")
print("|---|---|---|---|---|---|---|")
for part in sorted({part for variants in plans.values() for part in variants}, key=lambda part: (part != "", part)):
    with_all = [(key, variants[""], variants[part]) for key, variants in plans.items() if part in variants and "" in variants]
    both = [(key, old, new) for key, old, new in with_all if old[0] == new[0] == "fits"]
    lost = sum(old[0] == "fits" != new[0] for _, old, new in with_all)
    slower = sum(new[1] > old[1] * 1.0001 for _, old, new in both)
    faster = sum(new[1] < old[1] / 1.0001 for _, old, new in both)
    over = [new[1] / best[key] - 1 for key, _, new in both]
    gaps = [100 * statistics.mean(plan[1] / plan[2] - 1 for plan in side) for side in ([old for _, old, _ in both], [new for _, _, new in both])]
    cost = [new[3] / max(old[3], 1e-9) for _, old, new in both]
    total = sum(new[3] for _, _, new in both) / max(sum(old[3] for _, old, _ in both), 1e-9)
    print(f"| {part or '(nothing)'} | {len(with_all)} | {lost} | {slower}, {faster} | {percent(over)} "
          f"| {gaps[0]:.2f} %, {gaps[1]:.2f} % | {statistics.median(cost):.2f}, {total:.2f} |")
