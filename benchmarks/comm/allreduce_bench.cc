// allreduce_bench: an allreduce of float32 in place, by processes of this host that are pinned to processors.
// JSON lines with bench "allreduce"; `threads` is the number of ranks.
//
//   allreduce_bench --ranks 2,4 --systems mx_shm_arena,openmpi
//
// Systems: mx_shm_arena and mx_shm (shared memory, with buffers from allocate() and others), bare (a loop
// without any check: the limit), memory (a copy of as many bytes), openmpi (a program of its own, if MPI was
// found), mx_tcp, openmpi_tcp, gloo_ring and gloo_hd (over the loopback interface), loopback (bare sockets
// that carry the bytes of an allreduce: the limit of TCP), mx_tcp_2hosts and mx_shm_tcp_2hosts (two simulated
// hosts with half of the ranks each, without and with shared memory within a host; with _any: sums in any
// order). All systems run in turn, round after round, so
// that a machine that slows down slows all of them.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <sstream>

#include "benchmarks/comm/allreduce.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"
#include "examples/support/command_line.h"

namespace {

using namespace mx::bench;

using Samples = std::map<size_t, std::vector<double>>;  // bytes to microseconds

int cpu_of(int rank) {
  const std::vector<int> cpus = allowed_cpus();
  return cpus[static_cast<size_t>(rank) % cpus.size()];
}

// The first rank writes "<bytes> <microseconds>" lines into the pipe.
[[noreturn]] void run_rank(const AllreduceSystem& system,
                           const std::function<std::unique_ptr<AllreduceRank>(int)>& join, int rank,
                           int ranks, size_t most_bytes, int rounds, int out) {
  try {
    pin_to({cpu_of(rank)});
    const std::unique_ptr<AllreduceRank> self = join(rank);
    for (const size_t bytes : kAllreduceBytes) {
      if (bytes > most_bytes) continue;
      const std::vector<double> samples =
          measure_allreduce(*self, ranks, bytes, system.adds, rounds, system.fewer_calls);
      if (rank != 0) continue;
      for (const double sample : samples) dprintf(out, "%zu %.4f\n", bytes, sample);
    }
    self->barrier();
    _exit(0);
  } catch (const std::exception& error) {
    note(system.name + ", rank " + std::to_string(rank) + ": " + error.what());
    _exit(1);
  }
}

void read_samples(const std::string& text, Samples& samples) {
  std::istringstream lines(text);
  size_t bytes = 0;
  double microseconds = 0;
  while (lines >> bytes >> microseconds) samples[bytes].push_back(microseconds);
}

bool run_forked(const AllreduceSystem& system, int ranks, size_t most_bytes, int rounds, Samples& samples) {
  const auto join = system.prepare(ranks);
  int ends[2];
  if (pipe(ends) != 0) return false;
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = fork();
    if (process == 0) run_rank(system, join, rank, ranks, most_bytes, rounds, ends[1]);
    processes.push_back(process);
  }
  close(ends[1]);
  std::string text;
  char bytes[4096];
  for (ssize_t n = 0; (n = read(ends[0], bytes, sizeof(bytes))) > 0;)
    text.append(bytes, static_cast<size_t>(n));
  close(ends[0]);
  bool ok = true;
  for (const pid_t process : processes) {
    int status = 0;
    waitpid(process, &status, 0);
    ok = ok && status == 0;
  }
  read_samples(text, samples);
  return ok;
}

#ifdef MX_BENCH_MPIRUN
bool run_openmpi(const std::string& transports, int ranks, size_t most_bytes, int rounds, Samples& samples) {
  const std::string self = self_path();
  const std::string program = self.substr(0, self.rfind('/') + 1) + "allreduce_bench_mpi";
  const std::vector<std::string> argv = {MX_BENCH_MPIRUN,
                                         "--allow-run-as-root",
                                         "--oversubscribe",
                                         "--bind-to",
                                         "none",
                                         "--mca",
                                         "btl",
                                         transports,
                                         "-np",
                                         std::to_string(ranks),
                                         program,
                                         std::to_string(most_bytes),
                                         std::to_string(rounds)};
  const ChildResult result = run_child(argv, allowed_cpus(), 300);
  read_samples(result.output, samples);
  return result.status == 0 && !result.timed_out;
}
#endif

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> sizes = {2, 4};
  std::vector<std::string> chosen;
  int rounds = 3, repeats = 5;
  int64_t most_bytes = 67'108'864;
  mx::examples::CommandLine line("Measures allreduce between processes of this host; JSON lines on stdout");
  line.option("--ranks", &sizes, "numbers of ranks: 2, 4");
  line.option("--systems", &chosen, "systems; default: all").called("NAME,...");
  line.option("--rounds", &rounds, "rounds over all systems").positive();
  line.option("--repeats", &repeats, "measurements of each size in a round").positive();
  line.option("--most-bytes", &most_bytes, "the largest size").positive();
  if (const auto status = line.parse(argc, argv)) return *status;

  const auto wanted = [&](const std::string& name) {
    return chosen.empty() || std::find(chosen.begin(), chosen.end(), name) != chosen.end();
  };
  std::vector<AllreduceSystem> systems = allreduce_systems();
  bool ok = true;
  const auto most = static_cast<size_t>(most_bytes);
  for (const int ranks : sizes) {
    std::map<std::string, Samples> results;
    for (int round = 0; round < rounds; ++round) {
      for (const AllreduceSystem& system : systems)
        if (wanted(system.name)) ok = run_forked(system, ranks, most, repeats, results[system.name]) && ok;
#ifdef MX_BENCH_MPIRUN
      for (const auto& [name, transports] :
           {std::pair("openmpi", "self,vader"), std::pair("openmpi_tcp", "self,tcp")})
        if (wanted(name)) ok = run_openmpi(transports, ranks, most, repeats, results[name]) && ok;
#endif
    }
    for (const size_t bytes : kAllreduceBytes)
      for (const auto& [name, samples] : results)
        if (const auto found = samples.find(bytes); found != samples.end())
          print({"allreduce", allreduce_case(bytes), name, ranks, "us", summarize(found->second)});
  }
  return ok ? 0 : 1;
}
