#!/usr/bin/env python3
"""Sets our figures beside the best peer and the bars: of lines that benchmarks printed, or of a run of its own.

    engine_bench > new.jsonl
    compare.py new.jsonl                                        the table
    compare.py new.jsonl --baseline old.jsonl --fail-above 1.2  status 1 if something became 1.2x worse
    compare.py new.jsonl --strict                               status 1 if a bar is missed

    compare.py --run build/release/benchmarks/op_bench* --rounds 5 --save op.jsonl [-- --cases add,sgemm]
        starts the programs in turn, round after round, so that a machine that slows down slows all of them;
        what follows -- goes to each of them

Where op_bench_limits is among the programs, what a copy reaches at the same size stands behind each GB/s, and
what part of it ours are.

A ratio is always "ours to theirs, the worse the larger": 1.0 or less means the bar is met or the peer beaten,
whichever way the unit points. Several files are read as one run: of a record that comes several times the
median counts. With --latest the last one replaces the others.
"""
import argparse
import fnmatch
import json
import os
import statistics
import subprocess
import sys

OURS = ("mx", "mx_replay", "mx_eager", "mx_compiled")
MACHINE = "machine"  # the system of limits


def read_records(paths):
    for path in paths:
        stream = sys.stdin if path == "-" else open(path, encoding="utf-8")
        with stream:
            for line in stream:
                if line.startswith("{"):
                    yield json.loads(line)


def run_programs(programs, rounds, arguments, save):
    """The records of all programs, started one after the other, round after round."""
    records = []
    for number in range(rounds):
        # Every other round runs backwards, so that no program always runs after the same one.
        for program in programs if number % 2 == 0 else programs[::-1]:
            print(f"round {number + 1} of {rounds}: {os.path.basename(program)}", file=sys.stderr)
            result = subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True, check=False)
            if result.returncode != 0:
                print(f"{program} ended with status {result.returncode}", file=sys.stderr)
            for line in result.stdout.splitlines():
                if line.startswith("{"):
                    records.append(json.loads(line))
                    if save:
                        print(line, file=save, flush=True)
    return records


def table_of(records, latest=False):
    """{(bench, case, threads): {system: record}} in the order of first appearance; "value" is the median."""
    found = {}
    for record in records:
        key = (record["bench"], record["case"], record["threads"])
        found.setdefault(key, {}).setdefault(record["system"], []).append(record)
    table = {}
    for key, systems in found.items():
        table[key] = {}
        for system, same in systems.items():
            value = statistics.median(r["value"] for r in same)
            table[key][system] = same[-1] if latest else {**same[-1], "value": value}
    return table


class Bars:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.content = json.load(file)

    def find(self, bench, system, case, threads, row_peer, limit):
        """The figure to reach, or None."""
        if bench == "engine":
            entry = self.content["bars"].get(system, {}).get(case)
            if entry is None or threads not in (1, 2):
                return None
            return entry["bar"][threads - 1]
        for rule in self.content.get("rules", []):
            if rule["bench"] != bench or not any(fnmatch.fnmatch(case, p) for p in rule["cases"]):
                continue
            if "value" in rule:
                return rule["value"]
            of_limit = limit(rule["limit"]) if "limit" in rule else None
            wanted = [rule["part"] * x for x in (of_limit, row_peer if "peer" in rule else None) if x is not None]
            return max(wanted) if wanted else None
        return None

    def rivals(self, bench, system, row, threads):
        if bench != "engine":
            return [s for s in row if s not in OURS and s != MACHINE]
        left_out = {r["system"] for r in self.content["not_rivals"] if r["threads"] == threads}
        return [s for s in self.content["rivals"].get(system, []) if s not in left_out]


def higher_is_better(unit):
    return unit in ("x", "ratio", "GB/s", "GFLOP/s", "samples/s", "tokens/s")


def ratio(ours, theirs, unit):
    """How much worse ours is; None where a ratio says nothing."""
    if theirs is None or ours is None:
        return None
    if higher_is_better(unit):
        ours, theirs = theirs, ours
    if theirs <= 0:
        return 1.0 if ours <= 0 else float("inf")
    return ours / theirs


def best_peer(row, names, unit):
    found = [(row[n]["value"], n) for n in names if n in row and row[n]["unit"] == unit]
    if not found:
        return None, ""
    return max(found) if higher_is_better(unit) else min(found)


def number(value):
    return "" if value is None else f"{value:.4g}"


def times(value):
    return "" if value is None else f"{value:.2f}x"


def print_table(header, rows):
    widths = [max(len(r[i]) for r in [header] + rows) for i in range(len(header))]
    for r in [header, ["-" * w for w in widths]] + rows:
        cells = [c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))]
        print("  ".join(cells).rstrip())


def limit_of(table, case, threads):
    """Looks up a limit of the same size and number of threads: "copy" for add/64MiB is copy/64MiB."""
    size = case[case.index("/"):] if "/" in case else ""

    def find(name):
        # The faster of plain and non-temporal stores is the limit of the machine.
        values = [table.get(("limits", n + size, threads), {}).get(MACHINE, {}).get("value") for n in name.split("|")]
        return max((v for v in values if v is not None), default=None)

    return find


def compare(table, bars, baseline):
    rows, missed, worse = [], [], []
    for (bench, case, threads), row in table.items():
        ours_here = [s for s in OURS if s in row and row[s]["unit"] != "violations"]
        for system in ours_here:
            record = row[system]
            ours, unit = record["value"], record["unit"]
            peer, peer_name = best_peer(row, bars.rivals(bench, system, row, threads), unit)
            limit = limit_of(table, case, threads)
            bar = bars.find(bench, system, case, threads, peer, limit)
            copy = limit("copy|copy_nt") if unit == "GB/s" else None
            to_bar = ratio(ours, bar, unit)
            before = baseline.get((bench, case, threads), {}).get(system, {}).get("value")
            to_before = ratio(ours, before, unit)
            rows.append([case, system, str(threads), number(ours), unit, number(peer), peer_name,
                         times(ratio(ours, peer, unit)), number(bar), times(to_bar),
                         number(before), times(to_before), number(copy), f"{ours / copy:.2f}" if copy else ""])
            if to_bar is not None and to_bar > 1:
                missed.append(f"{case} {system} on {threads}: {number(ours)} {unit}, bar {number(bar)}")
            if to_before is not None:
                worse.append((to_before, f"{case} {system} on {threads}"))
        if not ours_here and bench != "engine":
            # There are no figures of ours, only those of peers and limits.
            rivals = [s for s in row if s not in OURS]
            unit = row[rivals[0]]["unit"]
            peer, peer_name = best_peer(row, rivals, unit)
            bar = bars.find(bench, "mx", case, threads, peer, limit_of(table, case, threads))
            rows.append([case, "", str(threads), "", unit, number(peer), peer_name, "", number(bar), "", "", "", "", ""])
    return rows, missed, worse


def warn_if_restless(table):
    control = table.get(("engine", "handoff", 2), {}).get(MACHINE)
    if control and control.get("max", 0) > 2 * control.get("min", 1):
        print(f"\nRestless machine: the cache-line hand-off moved between {number(control['min'])} and "
              f"{number(control['max'])} ns while this ran; two-core figures mean little.")


def parse_arguments():
    arguments = sys.argv[1:]
    passed_on = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, passed_on = arguments[:at], arguments[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="records; - or nothing is standard input")
    parser.add_argument("--run", nargs="+", metavar="PROGRAM", default=[], help="programs to start and compare")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is started")
    parser.add_argument("--save", help="a file for the records of --run")
    parser.add_argument("--bars", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "bars.json"))
    parser.add_argument("--baseline", action="append", default=[], help="an earlier run to compare with")
    parser.add_argument("--latest", action="store_true", help="of the same record the last counts, not the median")
    parser.add_argument("--fail-above", type=float, help="status 1 if anything is this much worse than the baseline")
    parser.add_argument("--strict", action="store_true", help="status 1 if a bar is missed")
    args = parser.parse_args(arguments)
    args.passed_on = passed_on
    return args


def main():
    args = parse_arguments()
    records = list(read_records(args.files or ([] if args.run else ["-"])))
    if args.run:
        with open(args.save or os.devnull, "a", encoding="utf-8") as save:
            records += run_programs(args.run, args.rounds, args.passed_on, save)
    table, bars, baseline = table_of(records, args.latest), Bars(args.bars), table_of(read_records(args.baseline))
    rows, missed, worse = compare(table, bars, baseline)
    print_table(["case", "system", "cores", "ours", "unit", "best peer", "", "to peer", "bar", "to bar",
                 "before", "to before", "copy", "of it"], rows)
    if missed:
        print(f"\n{len(missed)} bars missed:")
        for line in missed:
            print("  " + line)
    warn_if_restless(table)
    failed = args.strict and bool(missed)
    for factor, what in sorted(worse, reverse=True):
        if args.fail_above is not None and factor > args.fail_above:
            print(f"worse than before: {what}, {times(factor)}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
