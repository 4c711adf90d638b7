"""Makes a table of Nsight Compute's output: python3 bench/gpu/ncu_table.py FILE.csv (ncu --csv --page raw --print-units base).

A row for each kernel and grid, of its last launch: the attention kernels first, then the others by time. "tensor" and
"DRAM" are shares of the peak over the kernel's whole time, "warps" the share of the warps that could be resident that
were. Exit 1: no kernel was looked into.
"""
import csv
import re
import sys

OTHERS = 14  # rows besides attention's
TIME = "gpu__time_duration.sum"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
REGISTERS = "launch__registers_per_thread"


def number(row, name):
    """None if the tool lacks this figure on this GPU."""
    text = (row.get(name) or "").replace(",", "")
    return float(text) if re.fullmatch(r"[0-9.]+(e[+-]?[0-9]+)?", text) else None


def launches(path):
    """The rows after the line of column names, without the program's output and the line of units."""
    with open(path, newline="") as file:
        lines = [line for line in file if line.startswith('"')]
    return [row for row in csv.DictReader(lines) if number(row, TIME) is not None]


def short(name):
    name = re.sub(r"\((anonymous namespace|int|bool|unsigned int)\)(::)?|<unnamed>::|^void ", "", name)
    return re.sub(r"\(.*\)$", "", name).replace("|", "/")[:90]


def main():
    last, count = {}, {}
    for row in launches(sys.argv[1]):
        key = (row["Kernel Name"], row["Grid Size"], row["Block Size"])
        last[key], count[key] = row, count.get(key, 0) + 1
    if not last:
        sys.exit("Nsight Compute looked into no kernel")
    print("| kernel | grid × block | launches | time | tensor | DRAM | warps | registers |")
    print("|---|---|---|---|---|---|---|---|")
    ordered = sorted(last.values(), key=lambda row: -number(row, TIME))
    ours = [row for row in ordered if re.search("attention|sdpa|flash|fmha", row["Kernel Name"])]  # ours or cuDNN's
    for row in ours + [row for row in ordered if row not in ours][:OTHERS]:
        key = (row["Kernel Name"], row["Grid Size"], row["Block Size"])
        shares = " | ".join("–" if number(row, m) is None else f"{number(row, m):.1f} %" for m in (TENSOR, DRAM, WARPS))
        registers = number(row, REGISTERS)
        print(f"| {short(row['Kernel Name'])} | {row['Grid Size']} × {row['Block Size']} | {count[key]} | "
              f"{number(row, TIME) / 1e3:.1f} µs | {shares} | {'–' if registers is None else int(registers)} |")
    total = sum(number(row, TIME) for row in last.values())
    print(f"\n{sum(count.values())} launches of {len(last)} kernels, {len(ours)} of attention; each once: {total / 1e6:.2f} ms")


if __name__ == "__main__":
    main()
