// The ranks of allreduce_bench in Open MPI: mpirun -np RANKS allreduce_bench_mpi MOST_BYTES ROUNDS.
// Rank 0 prints "<bytes> <microseconds>" lines.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "benchmarks/comm/allreduce.h"
#include "benchmarks/support/process.h"

namespace {

class MpiRank final : public mx::bench::AllreduceRank {
 public:
  float* allocate(size_t count) override {
    buffer_ = std::vector<float>(count);
    return buffer_.data();
  }
  void allreduce(float* values, size_t count) override {
    MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

 private:
  std::vector<float> buffer_;
};

}  // namespace

int main(int argc, char** argv) {
  using namespace mx::bench;
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::vector<int> cpus = allowed_cpus();
  pin_to({cpus[static_cast<size_t>(rank) % cpus.size()]});
  const size_t most_bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 67'108'864;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  MpiRank self;
  for (const size_t bytes : kAllreduceBytes) {
    if (bytes > most_bytes) continue;
    const std::vector<double> samples = measure_allreduce(self, ranks, bytes, true, rounds);
    for (const double sample : samples)
      if (rank == 0) std::printf("%zu %.4f\n", bytes, sample);
  }
  MPI_Finalize();
}
