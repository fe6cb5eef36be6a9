#!/usr/bin/env python3
"""Measures the all-reduce on links of 64 B/ns and 50 ns per hop, and writes the tables of docs/collectives.md.

  scripts/collective_figures.py [--program build/release/platform/ahbm-vp] [--largest N] [--write]

Without --write the tables are printed. --largest leaves out the machines with more ranks. Needs Python 3 only.
"""
import argparse
import csv
import io
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "collectives.md"
MIB = 1 << 20

# name: (topology, SIPs, algorithms)
MACHINES = {
    "ring4": ("ring_1d", 4, ["ring", "ring_bidirectional"]),
    "ring8": ("ring_1d", 8, ["ring", "ring_bidirectional"]),
    "ring16": ("ring_1d", 16, ["ring", "ring_bidirectional"]),
    "torus4x4": ("torus_2d", 16, ["torus_2d"]),
    "torus8x8": ("torus_2d", 64, ["torus_2d"]),
    "mesh4x4": ("mesh_2d", 16, ["mesh_2d"]),
}
# ASTRA-sim's analytical backend, March 2026, endpoint delay 10 ns, one chunk: ns for 1 MiB and 64 MiB.
ASTRA_SIM = {
    "ring4": (26413, 1667599),
    "ring8": (31223, 1945940),
    "ring16": (34330, 2085835),
    "torus4x4": (33297, 2084784),
    "torus8x8": (35877, 2189931),
}
LINE = [16, 64, 256, 1024, 4096]


def run(program, topology, sips, size, *more):
    """One row of the program's CSV, with the user time in s and the largest resident set in MiB."""
    command = [program, "all_reduce", "-c", "peer_64B_50ns", "--quiet", "--csv", "/dev/stdout", "-b", str(size),
               "-e", str(size), "--set", f"system.sips.topology={topology}", "--set", f"system.sips.count={sips}", *more]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {child.returncode}")
    row = next(csv.DictReader(io.StringIO(text)))
    if row["wrong"] not in ("0", "n/a"):
        sys.exit(f"{' '.join(command)}: {row['wrong']} wrong elements")
    row["user"] = usage.ru_utime
    row["mib"] = usage.ru_maxrss / 1024
    return row


def ns(row, key):
    return float(row[key]) * 1000


def times(program, largest):
    yield "| machine | size | algorithm | simulated | closed form | of it | lower bound | ASTRA-sim | faster by |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, (topology, sips, algorithms) in MACHINES.items():
        if sips > largest:
            continue
        for column, size in enumerate((MIB, 64 * MIB)):
            for algorithm in algorithms:
                # The bytes of 64 ranks with 64 MiB each need not move to be timed.
                data = [] if sips * size <= 1024 * MIB else ["--set", "simulation.functional=false"]
                row = run(program, topology, sips, size, "--explain", "--algorithm", algorithm, *data)
                time, form, bound = (ns(row, k) for k in ("time_us", "closed_form_us", "bound_us"))
                peer = ASTRA_SIM.get(name, (None, None))[column]
                yield (f"| {name} | {size // MIB} MiB | `{algorithm}` | {time:.0f} | {form:.0f} | {time / form:.3f} | "
                       f"{bound:.0f} | {peer if peer else '-'} | {f'{peer / time:.2f} x' if peer else '-'} |")


def wall(program, largest):
    yield "| ranks | simulated | messages | user time | per message | memory |"
    yield "|---|---|---|---|---|---|"
    for sips in LINE:
        if sips > largest:
            continue
        stats = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"collective_figures_{os.getpid()}.csv"
        row = run(program, "torus_2d", sips, MIB, "--set", "simulation.functional=false", "--algorithm", "torus_2d")
        run(program, "torus_2d", sips, MIB, "--set", "simulation.functional=false", "--algorithm", "torus_2d", "--stats",
            str(stats))
        with stats.open() as f:
            messages = sum(int(r["value"]) for r in csv.DictReader(f) if r["name"] == "messages_sent")
        stats.unlink()
        yield (f"| {sips} | {ns(row, 'time_us'):.0f} ns | {messages} | {row['user']:.2f} s | "
               f"{row['user'] / messages * 1e6:.1f} us | {row['mib']:.0f} MiB |")


def replace(text, mark, lines):
    begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    head, rest = text.split(begin)
    return head + begin + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/platform/ahbm-vp"))
    parser.add_argument("--largest", type=int, default=4096, help="ranks of the largest machine")
    parser.add_argument("--write", action="store_true", help="into docs/collectives.md")
    arguments = parser.parse_args()
    tables = {"times": list(times(arguments.program, arguments.largest)),
              "wall": list(wall(arguments.program, arguments.largest))}
    if not arguments.write:
        print("\n\n".join("\n".join(lines) for lines in tables.values()))
        return
    text = DOCUMENT.read_text()
    for mark, lines in tables.items():
        text = replace(text, mark, lines)
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    main()
