#!/usr/bin/env python3
"""Measures distributed training beside its peers, and sets the figures beside the bars "distributed" of bars.json.

    distributed_bench.py build/release                   everything: about ten minutes on a quiet machine
    distributed_bench.py build/release --only overlap    one part; --list prints the parts
    distributed_bench.py build/release --quick           seconds; shows that it works, measures little
    distributed_bench.py build/release --table old.jsonl only the table, from the records of earlier runs

Records are JSON lines, as of all benchmarks; --save names their file. The table goes to stdout, notes to stderr.
The status is 1 if a part failed (a peer that is missing is no failure), and with --strict also if a bar is missed.
All processes and network namespaces of a part are gone when it ends, however it ends.
"""
import argparse
import ctypes
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
SEARCH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
MARKER = uuid.uuid4().hex  # in the environment of everything that is started here
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]

# Two hosts n0 and n1, joined by a cable of 8 Gbit/s. The program runs on n0. The hosts exist only inside the
# namespaces of this shell.
HOSTS = """set -e
mount -t tmpfs none /run
mkdir -p /run/netns
ip netns add n0
ip netns add n1
ip link add eth0 netns n0 type veth peer name eth0 netns n1
for i in 0 1; do
  ip -n n$i addr add 10.94.0.$((i + 1))/24 dev eth0
  ip -n n$i link set lo up
  ip -n n$i link set eth0 up
  ip netns exec n$i tc qdisc add dev eth0 root tbf rate 8gbit burst 512kb latency 20ms
  for name in cubic reno; do
    ip netns exec n$i sh -c "echo $name > /proc/sys/net/ipv4/tcp_congestion_control" 2>/dev/null && break
  done
done
hostname n0
exec ip netns exec n0 "$@"
"""
# In place of ssh: enters a host, each of which has one processor.
STAND_IN = """#!/bin/sh
while :; do case "$1" in -o) shift 2;; -*) shift;; *) break;; esac; done
host=$1; shift
case $host in n0) cpu={0};; *) cpu={1};; esac
exec ip netns exec $host unshare --uts taskset -c $cpu sh -c "hostname $host; $*"
"""


def note(text):
    print(text, file=sys.stderr, flush=True)


class Skipped(Exception):
    """A part that this machine cannot run; the reason is the text."""


def marked_processes():
    """Processes that were started here, at any depth, except this one."""
    wanted, found = f"MX_BENCH_MARKER={MARKER}".encode(), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0") and int(name) != os.getpid():
                    found.append(int(name))
        except OSError:
            continue
    return found


def kill_all():
    for pid in marked_processes():
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def environment(**more):
    return {**os.environ, "PATH": SEARCH, "MX_BENCH_MARKER": MARKER, **more}


def end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def start(argv, **more):
    return subprocess.Popen(list(map(str, argv)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True,
                            preexec_fn=end_with_parent, env=environment(**more))


def finish(process, argv, seconds):
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        kill_all()
        process.communicate()
        raise RuntimeError(f"{os.path.basename(str(argv[0]))} did not end within {seconds} s") from None
    return out, err


def run(argv, seconds=300, **more):
    """Runs a program and returns what it printed."""
    process = start(argv, **more)
    out, err = finish(process, argv, seconds)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, argv))} ended with {process.returncode}: {err.strip()[-600:]}")
    return out, err


def records_of(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def record(bench, case, system, threads, unit, samples):
    return {"bench": bench, "case": case, "system": system, "threads": threads, "value": statistics.median(samples),
            "unit": unit, "min": min(samples), "max": max(samples), "n": len(samples)}


class Bench:
    """The parts. Each returns its records."""

    def __init__(self, build, quick, folder):
        self.build, self.quick, self.folder = os.path.abspath(build), quick, folder
        self.cpus = sorted(os.sched_getaffinity(0))

    def program(self, name):
        path = os.path.join(self.build, name)
        if not os.path.exists(path):
            raise Skipped(f"{name} is not built")
        return path

    def mxrun(self):
        return self.program("mxrun")

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def allreduce(self):
        """Allreduce through shared memory and TCP beside Open MPI, Gloo, bare sockets, bare loops and copies."""
        argv = [self.program("benchmarks/allreduce_bench"), "--rounds", 5, "--repeats", 7]
        if self.quick:
            argv += ["--ranks", "2", "--rounds", "1", "--repeats", "1", "--most-bytes", "300000"]
        found = records_of(run(argv, 600)[0])
        for peer in ("openmpi", "gloo"):
            if not any(r["system"].startswith(peer) for r in found):
                note(f"  allreduce: without {peer}, which is not installed or was not found by CMake")
        return found

    def kvstore(self):
        """Push and pull through a server beside bare sockets."""
        return records_of(run([self.program("benchmarks/kvstore_bench"), "--rounds", 1 if self.quick else 25])[0])

    def mpi(self):
        """The communicator "mpi" beside a bare MPI_Allreduce in the same processes."""
        program = self.program("benchmarks/mpi_bench")
        if not shutil.which("mpirun"):
            raise Skipped("mpirun is not installed")
        sizes = [4096, 1] if self.quick else [67108864, 15]
        found = []
        for ranks in (2,) if self.quick else (2, 4):
            found += records_of(run([*MPIRUN, "-np", ranks, program, *sizes])[0])
        return found

    def overlap(self):
        """Training of an MLP on two hosts of one processor, joined by 8 Gbit/s; and in shared memory."""
        program, mxrun = self.program("benchmarks/overlap_bench"), self.mxrun()
        # The larger the batch, the more computation there is to hide the same communication.
        sizes = (16,) if self.quick else (64, 128, 256)
        options = ["--rounds", 1, "--steps", 2] if self.quick else ["--rounds", 15, "--steps", 20]
        why, found = self.no_hosts(), []
        cpus = (self.cpus[0], self.cpus[-1])
        stand_in = self.write("ssh", STAND_IN.format(*cpus))
        for batch in sizes:
            argv = ["--no-tag-output", "-x", "MX_NUM_THREADS=1", program, *options, "--batch", batch]
            if batch in (16, 128):
                found += records_of(run([mxrun, "-n", 2, *argv])[0])
            if not why:
                found += records_of(run(self.on_hosts("taskset", "-c", cpus[0], mxrun, "-H", "n0:1,n1:1", "--rdzv",
                                                      "10.94.0.1:0", *argv), MX_SSH=stand_in)[0])
        if why:
            raise Skipped(why, found)
        return found

    def on_hosts(self, *argv):
        return ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                "sh", "-c", HOSTS, "sh", *argv]

    def no_hosts(self):
        """Says why hosts cannot be made here, or nothing."""
        if os.geteuid() != 0:
            return "hosts are network namespaces, which need root"
        missing = [name for name in ("ip", "tc", "unshare", "taskset") if not shutil.which(name, path=SEARCH)]
        if missing:
            return f"hosts need {', '.join(missing)}"
        try:
            congestion = run(self.on_hosts("cat", "/proc/sys/net/ipv4/tcp_congestion_control"), 30)[0].strip()
        except RuntimeError as error:
            return f"no hosts here: {error}"
        note(f"  overlap: hosts n0 and n1 with processors {self.cpus[0]} and {self.cpus[-1]}, tbf at 8 Gbit/s, {congestion}")
        return ""

    def mnist(self):
        """Training of digits by two processes of one thread beside one process: with the same batch for each process, as
        people count who add processes, and with half of it."""
        program, mxrun = self.program("examples/train_mnist"), self.mxrun()
        data = os.path.join(os.path.dirname(HERE), "examples", "data", "mnist")
        if not os.path.isdir(data):
            raise Skipped("no examples/data/mnist")
        each = 500 if self.quick else 64
        rest = [program, "--data", data, "--epochs", 1 if self.quick else 3, "--save", f"{self.folder}/mnist.safetensors",
                "--curve", f"{self.folder}/mnist.svg", "--batch"]
        two = [mxrun, "-n", 2, "--no-tag-output"]
        # The processor that mxrun gives to its first rank.
        commands = {"one": ["taskset", "-c", self.cpus[0], *rest, each], "two": [*two, *rest, 2 * each],
                    "two_half": [*two, *rest, each]}
        samples = {name: [] for name in commands}
        for _ in range(1 if self.quick else 5):
            for name, command in commands.items():
                err = run(command, MX_NUM_THREADS="1")[1]
                rates = [float(rate) for rate in re.findall(r"(\d+) images/s", err)]
                # The first epoch loads the data.
                samples[name].append(statistics.median(rates[1:] or rates))
        def ratios(name):
            return [more / one for one, more in zip(samples["one"], samples[name])]
        return [record("mnist", "train_mnist", "mx_shm", 1, "samples/s", samples["one"]),
                record("mnist", "train_mnist", "mx_shm", 2, "samples/s", samples["two"]),
                record("mnist", "speedup", "mx_shm", 2, "x", ratios("two")),
                record("mnist", "speedup_same_batch", "mx_shm", 2, "x", ratios("two_half"))]

    def start(self):
        """The start and end of four processes that do nothing."""
        commands = {"mxrun": [self.mxrun(), "-n", 4, "true"]}
        if shutil.which("mpirun"):
            commands["openmpi"] = [*MPIRUN, "-n", 4, "true"]
        else:
            note("  start: without openmpi, which is not installed")
        samples = {name: [] for name in commands}
        for _ in range(2 if self.quick else 20):
            for name, command in commands.items():
                begin = time.monotonic()
                run(command)
                samples[name].append(time.monotonic() - begin)
        return [record("start", "start", name, 4, "s", samples[name]) for name in commands]

    def wait(self):
        """Processor time of ranks that wait."""
        program, mxrun = self.program("benchmarks/ranks_bench"), self.mxrun()
        found = []
        for transport in ("shm", "tcp"):
            for mode in ("wait", "store"):
                argv = [mxrun, "-n", 4, "--no-tag-output", "-x", f"MX_TRANSPORT={transport}", program, mode]
                found += records_of(run(argv + [2 if self.quick else 6])[0])
        return found

    def kill(self):
        """Time from kill -9 of a rank to the error of each survivor."""
        program, mxrun = self.program("benchmarks/ranks_bench"), self.mxrun()
        found = []
        for transport in ("shm", "tcp"):
            samples = []
            for _ in range(1 if self.quick else 10):
                samples += self.kill_one(program, mxrun, transport)
            found.append(record("ranks", "detect_killed", f"mx_{transport}", 4, "s", samples))
        return found

    def kill_one(self, program, mxrun, transport, ranks=4, victim=1):
        folder = tempfile.mkdtemp(dir=self.folder)
        argv = [mxrun, "-n", ranks, "-x", f"MX_TRANSPORT={transport}", program, "loop", folder]
        job = start(argv)

        def read(name):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                return file.read().split(" ", 1)

        end = time.monotonic() + 60
        while not all(os.path.exists(f"{folder}/ready{rank}") for rank in range(ranks)):
            if time.monotonic() > end or job.poll() is not None:
                kill_all()
                raise RuntimeError(f"the ranks did not start: {job.communicate()[1].strip()[-600:]}")
            time.sleep(0.005)
        pid = int(read(f"ready{victim}")[0])
        killed_at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        finish(job, argv, 60)
        times = []
        for rank in range(ranks):
            if rank != victim:
                at, text = read(f"lost{rank}")
                if f"rank {victim}" not in text:
                    raise RuntimeError(f"rank {rank} did not name rank {victim}: {text.strip()}")
                times.append(float(at) - killed_at)
        return times


PARTS = ("allreduce", "mpi", "kvstore", "overlap", "mnist", "start", "wait", "kill")


def number(value):
    return f"{value:.4g}"


def rows_of(records, bars):
    """One row for each bar: what it is about, what was measured, the bar, whether it is met, the other systems. Then
    one for each case without a bar."""
    found = {}
    for one in records:
        key = (one["bench"], one["case"], one["threads"])
        found.setdefault(key, {}).setdefault(one["system"], []).append(one)
    rows = []
    for bar in bars:
        row = found.get((bar["bench"], bar["case"], bar["threads"]), {})

        def value(system, field="value", row=row):
            return statistics.median(one.get(field, one["value"]) for one in row[system])

        what = [bar["bench"] + " " + bar["case"], bar["system"], str(bar["threads"])]
        system = bar["system"]
        if system not in row:
            rows.append([*what, "not measured", "", "", ""])
            continue
        ours, unit = value(system, bar.get("field", "value")), row[system][0]["unit"]
        side = "most" if "most" in bar else "least"
        limit = bar[side]
        if "of" in bar:
            limit = limit * value(bar["of"]) if bar["of"] in row else None
        met = "" if limit is None else "yes" if (ours <= limit if side == "most" else ours >= limit) else "NO"
        shown = "" if limit is None else f"{'<=' if side == 'most' else '>='} {number(limit)}"
        peers = ", ".join(f"{name} {number(value(name))}" for name in row if name != system)
        rows.append([*what, f"{number(ours)} {unit}", shown, met, peers])
    with_bar = {(bar["bench"], bar["case"], bar["threads"]) for bar in bars}
    for (bench, case, threads), row in found.items():
        if (bench, case, threads) not in with_bar:
            for system, same in row.items():
                middle = statistics.median(one["value"] for one in same)
                rows.append([f"{bench} {case}", system, str(threads), f"{number(middle)} {same[0]['unit']}", "", "", ""])
    return rows


def print_table(rows):
    header = ["case", "system", "ranks", "measured", "bar", "met", "beside"]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, ["-" * width for width in widths], *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def measure(bench, parts, save):
    """Runs the parts. Returns their records, and whether one failed."""
    records, failed = [], False
    for part in parts:
        begin = time.monotonic()
        try:
            found = getattr(bench, part)()
        except Skipped as reason:
            note(f"{part}: skipped: {reason.args[0]}")
            found = reason.args[1] if len(reason.args) > 1 else []
        except (RuntimeError, OSError, ValueError) as error:
            note(f"{part}: FAILED: {error}")
            found, failed = [], True
        finally:
            kill_all()
        for one in found:
            print(json.dumps(one), file=save, flush=True)
        records += found
        note(f"{part}: {len(found)} records, {time.monotonic() - begin:.0f} s")
    return records, failed


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="the build folder")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--list", action="store_true", help="print the parts")
    parser.add_argument("--quick", action="store_true", help="shows that it works, measures little")
    parser.add_argument("--save", help="file for the records; default: distributed.jsonl in the build folder")
    parser.add_argument("--table", nargs="+", metavar="FILE", help="print the table of these records; measure nothing")
    parser.add_argument("--bars", default=os.path.join(HERE, "bars.json"))
    parser.add_argument("--strict", action="store_true", help="status 1 if a bar is missed")
    return parser, parser.parse_args()


def main():
    parser, args = parse_arguments()
    if args.list:
        for part in PARTS:
            print(f"{part:10} {getattr(Bench, part).__doc__}")
        return 0
    parts = args.only.split(",")
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        parser.error(f"--only: expected some of {', '.join(PARTS)}, got {', '.join(unknown)}")
    with open(args.bars, encoding="utf-8") as file:
        bars = json.load(file)["distributed"]
    failed = False
    if args.table:
        records = []
        for path in args.table:
            with open(path, encoding="utf-8") as file:
                records += records_of(file.read())
    else:
        # A signal ends the program through the same clean-up as an error.
        for name in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, lambda number, frame: sys.exit(128 + number))
        path = args.save or os.path.join(args.build, "distributed.jsonl")
        try:
            with (tempfile.TemporaryDirectory(prefix="bench-", dir=args.build) as folder,
                  open(path, "w", encoding="utf-8") as save):
                records, failed = measure(Bench(args.build, args.quick, folder), parts, save)
        finally:
            kill_all()
        note(f"records: {path}")
    rows = rows_of(records, bars)
    print_table(rows)
    missed = sum(row[5] == "NO" for row in rows)
    print(f"\n{sum(row[5] == 'yes' for row in rows)} bars met, {missed} missed, "
          f"{sum(row[5] == '' for row in rows[:len(bars)])} not measured")
    if args.quick:
        print("--quick: the figures mean nothing")
    return 1 if failed or (args.strict and missed) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
