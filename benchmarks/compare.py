#!/usr/bin/env python3
"""Reads JSON lines of engine_bench and sets our figures beside the best peer and the bars.

    engine_bench > new.jsonl
    compare.py new.jsonl                                        the table
    compare.py new.jsonl --baseline old.jsonl --fail-above 1.2  status 1 if something became 1.2x worse
    compare.py new.jsonl --strict                               status 1 if a bar is missed

A ratio is always "ours to theirs, the worse the larger": 1.0 or less means the bar is met or the peer beaten,
whichever way the unit points. Several files are read as one run; a later line replaces an earlier one.
"""
import argparse
import json
import os
import sys

OURS = ("mx", "mx_replay")


def read_lines(paths):
    """{(case, threads): {system: record}} in the order of first appearance."""
    table = {}
    for path in paths:
        stream = sys.stdin if path == "-" else open(path, encoding="utf-8")
        with stream:
            for line in stream:
                if not line.startswith("{"):
                    continue
                record = json.loads(line)
                if record.get("bench") == "engine":
                    key = (record["case"], record["threads"])
                    table.setdefault(key, {})[record["system"]] = record
    return table


class Bars:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.content = json.load(file)

    def find(self, system, case, threads):
        entry = self.content["bars"].get(system, {}).get(case)
        if entry is None or threads not in (1, 2):
            return None
        return entry["bar"][threads - 1]

    def rivals(self, system, threads):
        left_out = {r["system"] for r in self.content["not_rivals"] if r["threads"] == threads}
        return [s for s in self.content["rivals"][system] if s not in left_out]


def higher_is_better(unit):
    return unit in ("x", "ratio")


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


def compare(table, bars, baseline):
    rows, missed, worse = [], [], []
    for (case, threads), row in table.items():
        for system in OURS:
            if system not in row or row[system]["unit"] == "violations":
                continue
            record = row[system]
            ours, unit = record["value"], record["unit"]
            peer, peer_name = best_peer(row, bars.rivals(system, threads), unit)
            bar = bars.find(system, case, threads)
            to_bar = ratio(ours, bar, unit)
            before = baseline.get((case, threads), {}).get(system, {}).get("value")
            to_before = ratio(ours, before, unit)
            rows.append([case, system, str(threads), number(ours), unit, number(peer), peer_name,
                         times(ratio(ours, peer, unit)), number(bar), times(to_bar),
                         number(before), times(to_before)])
            if to_bar is not None and to_bar > 1:
                missed.append(f"{case} {system} on {threads}: {number(ours)} {unit}, bar {number(bar)}")
            if to_before is not None:
                worse.append((to_before, f"{case} {system} on {threads}"))
    return rows, missed, worse


def warn_if_restless(table):
    control = table.get(("handoff", 2), {}).get("machine")
    if control and control.get("max", 0) > 2 * control.get("min", 1):
        print(f"\nRestless machine: the cache-line hand-off moved between {number(control['min'])} and "
              f"{number(control['max'])} ns while this ran; two-core figures mean little.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=["-"])
    parser.add_argument("--bars", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "bars.json"))
    parser.add_argument("--baseline", action="append", default=[], help="an earlier run to compare with")
    parser.add_argument("--fail-above", type=float, help="status 1 if anything is this much worse than the baseline")
    parser.add_argument("--strict", action="store_true", help="status 1 if a bar is missed")
    args = parser.parse_args()

    table, bars, baseline = read_lines(args.files), Bars(args.bars), read_lines(args.baseline)
    rows, missed, worse = compare(table, bars, baseline)
    print_table(["case", "system", "cores", "ours", "unit", "best peer", "", "to peer", "bar", "to bar",
                 "before", "to before"], rows)
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
