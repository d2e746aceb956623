// mpi_bench: what the communicator "mpi" adds to MPI. Started by mpirun:
//
//   mpirun -np 2 mpi_bench [MOST_BYTES ROUNDS]
//
// JSON lines of rank 0 with bench "mpi": the cases of allreduce_bench in microseconds, for the systems mx_mpi
// (order `any`) and mpi, a bare MPI_Allreduce; and, with the unit "x", mx_to_mpi: the median over the rounds
// of the ratio within a round. Both run in the same processes, in turn.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/comm/allreduce.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"
#include "comm/world.h"

namespace {

using namespace mx;
using namespace mx::bench;

class BareMpi final : public AllreduceRank {
 public:
  explicit BareMpi(std::vector<float>& buffer) : buffer_(buffer) {}
  float* allocate(size_t) override { return buffer_.data(); }
  void allreduce(float* values, size_t count) override {
    MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

 private:
  std::vector<float>& buffer_;
};

class MxMpi final : public AllreduceRank {
 public:
  MxMpi(std::vector<float>& buffer, std::shared_ptr<comm::Communicator> group)
      : buffer_(buffer), group_(std::move(group)) {
    any_order_.order = comm::Order::any;
  }
  float* allocate(size_t) override { return buffer_.data(); }
  void allreduce(float* values, size_t count) override {
    group_->allreduce(values, values, count, comm::Type::f32, any_order_);
  }
  void barrier() override { group_->barrier(); }

 private:
  std::vector<float>& buffer_;
  const std::shared_ptr<comm::Communicator> group_;
  comm::CallOptions any_order_;
};

void run(size_t most_bytes, int rounds) {
  // Before the communicator starts its threads, which inherit the processor.
  int here = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &here);
  const std::vector<int> cpus = allowed_cpus();
  pin_to({cpus[static_cast<size_t>(here) % cpus.size()]});
  // Not world(), which would live until after MPI_Finalize.
  const std::shared_ptr<comm::Communicator> group = comm::new_group("mpi");
  const int ranks = group->size();
  for (const size_t bytes : kAllreduceBytes) {
    if (bytes > most_bytes) continue;
    // Both add up in the same memory.
    std::vector<float> buffer(bytes / sizeof(float));
    MxMpi ours(buffer, group);
    BareMpi bare(buffer);
    std::vector<double> mine, theirs, ratios;
    for (int round = 0; round < rounds; ++round) {
      // Every other round begins with the other system.
      double us[2];
      for (int k = 0; k < 2; ++k) {
        const int system = (round + k) % 2;
        AllreduceRank& rank = system == 0 ? static_cast<AllreduceRank&>(ours) : bare;
        us[system] = median(measure_allreduce(rank, ranks, bytes, true, 1));
      }
      mine.push_back(us[0]);
      theirs.push_back(us[1]);
      ratios.push_back(us[0] / us[1]);
    }
    if (group->rank() != 0) continue;
    print({"mpi", allreduce_case(bytes), "mx_mpi", ranks, "us", summarize(mine)});
    print({"mpi", allreduce_case(bytes), "mpi", ranks, "us", summarize(theirs)});
    print({"mpi", allreduce_case(bytes), "mx_to_mpi", ranks, "x", summarize(ratios)});
  }
}

}  // namespace

int main(int argc, char** argv) {
  // The communicator calls MPI from a thread of its own; while it is idle, the main thread may.
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  int status = 0;
  try {
    run(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 67'108'864, argc > 2 ? std::atoi(argv[2]) : 9);
  } catch (const std::exception& error) {
    note(error.what());
    status = 1;
  }
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
}
