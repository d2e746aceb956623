#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <stdexcept>

#include "benchmarks/comm/allreduce.h"
#include "benchmarks/support/clock.h"
#include "benchmarks/support/process.h"
#include "comm/shm/shm_communicator.h"

namespace mx::bench {
namespace {

class CommunicatorRank final : public AllreduceRank {
 public:
  CommunicatorRank(std::shared_ptr<comm::Communicator> group, bool arena, comm::Order order)
      : group_(std::move(group)), arena_(arena) {
    options_.order = order;
  }
  float* allocate(size_t count) override {
    if (arena_) {
      buffers_.push_back(group_->allocate(count * sizeof(float)));
    } else {
      buffers_.push_back(group_->Communicator::allocate(count * sizeof(float)));
    }
    return static_cast<float*>(buffers_.back().get());
  }
  void allreduce(float* values, size_t count) override {
    group_->allreduce(values, values, count, comm::Type::f32, options_);
  }
  void barrier() override { group_->barrier(); }

 private:
  const std::shared_ptr<comm::Communicator> group_;
  const bool arena_;
  comm::CallOptions options_;
  std::vector<std::shared_ptr<void>> buffers_;
};

AllreduceSystem shm_system(const std::string& name, bool arena) {
  return {name, [arena](int ranks) {
            auto memory = std::make_shared<comm::ShmGroup>(ranks);
            return [memory, arena](int rank) -> std::unique_ptr<AllreduceRank> {
              return communicator_rank(memory->join(rank), arena);
            };
          }};
}

// Memory that forked processes share.
char* shared_memory(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  return static_cast<char*>(memory);
}

// The limit: each rank adds up its slice of the buffers of all and writes it into all, between two spinning
// barriers. No call is checked, and nothing is noticed if a rank dies.
struct BareShared {
  static constexpr size_t kBuffer = size_t{80} << 20;
  struct alignas(128) Line {
    std::atomic<uint64_t> arrived{0};
  };

  explicit BareShared(int size)
      : ranks(size), lines(new (shared_memory(kMostRanks * sizeof(Line))) Line[kMostRanks]) {
    for (int r = 0; r < size; ++r) buffers.push_back(shared_memory(kBuffer));
    yields = size > static_cast<int>(allowed_cpus().size());
  }

  static constexpr int kMostRanks = 16;
  int ranks;
  bool yields = false;
  Line* lines;
  std::vector<char*> buffers;
};

class BareRank final : public AllreduceRank {
 public:
  BareRank(std::shared_ptr<BareShared> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}

  float* allocate(size_t count) override {
    const size_t at = used_;
    used_ += (count * sizeof(float) + 4095) / 4096 * 4096;
    if (used_ > BareShared::kBuffer) throw std::runtime_error("buffer too small");
    return reinterpret_cast<float*>(shared_->buffers[static_cast<size_t>(rank_)] + at);
  }

  void allreduce(float* values, size_t count) override {
    const size_t at =
        static_cast<size_t>(reinterpret_cast<char*>(values) - shared_->buffers[static_cast<size_t>(rank_)]);
    const auto ranks = static_cast<size_t>(shared_->ranks);
    float* buffers[BareShared::kMostRanks];
    for (size_t r = 0; r < ranks; ++r) buffers[r] = reinterpret_cast<float*>(shared_->buffers[r] + at);
    barrier();
    const size_t first = count / ranks * static_cast<size_t>(rank_), last = first + count / ranks;
    if (ranks == 2) {
      add_all<2>(buffers, first, last);
    } else if (ranks == 4) {
      add_all<4>(buffers, first, last);
    } else {
      throw std::runtime_error("bare: expected 2 or 4 ranks");
    }
    barrier();
  }

  void barrier() override {
    shared_->lines[rank_].arrived.store(++step_, std::memory_order_release);
    for (int r = 0; r < shared_->ranks; ++r) {
      while (shared_->lines[r].arrived.load(std::memory_order_acquire) < step_) {
        if (shared_->yields)
          sched_yield();
        else
          relax();
      }
    }
  }

 private:
  template <size_t Ranks>
  static void add_all(float* const* buffers, size_t first, size_t last) {
    constexpr size_t kBlock = 2048;
    alignas(64) float sum[kBlock];
    for (size_t i = first; i < last; i += kBlock) {
      const size_t n = std::min(kBlock, last - i);
      for (size_t k = 0; k < n; ++k) {
        float s = buffers[0][i + k];
        for (size_t r = 1; r < Ranks; ++r) s += buffers[r][i + k];
        sum[k] = s;
      }
      for (size_t r = 0; r < Ranks; ++r) std::memcpy(buffers[r] + i, sum, n * sizeof(float));
    }
  }

  const std::shared_ptr<BareShared> shared_;
  const int rank_;
  uint64_t step_ = 0;
  size_t used_ = 0;
};

// The limit of the memory: each rank copies as many bytes, at the same time.
class CopyRank final : public AllreduceRank {
 public:
  CopyRank(std::shared_ptr<BareShared> shared, int rank) : sync_(std::move(shared), rank) {}
  float* allocate(size_t count) override {
    from_ = std::vector<float>(count, 1.0f);
    to_ = std::vector<float>(count, 1.0f);
    return to_.data();
  }
  void allreduce(float* values, size_t count) override {
    std::memcpy(values, from_.data(), count * sizeof(float));
    asm volatile("" : : "r"(values) : "memory");
  }
  void barrier() override { sync_.barrier(); }

 private:
  BareRank sync_;
  std::vector<float> from_, to_;
};

template <class Rank>
AllreduceSystem shared_system(const std::string& name, bool adds) {
  return {name,
          [](int ranks) {
            auto shared = std::make_shared<BareShared>(ranks);
            return [shared](int rank) -> std::unique_ptr<AllreduceRank> {
              return std::make_unique<Rank>(shared, rank);
            };
          },
          adds};
}

}  // namespace

std::unique_ptr<AllreduceRank> communicator_rank(std::shared_ptr<comm::Communicator> group, bool arena,
                                                 comm::Order order) {
  return std::make_unique<CommunicatorRank>(std::move(group), arena, order);
}

std::vector<AllreduceSystem> allreduce_systems() {
  std::vector<AllreduceSystem> systems = {shm_system("mx_shm_arena", true), shm_system("mx_shm", false),
                                          shared_system<BareRank>("bare", true),
                                          shared_system<CopyRank>("memory", false)};
  for (AllreduceSystem& system : tcp_systems()) systems.push_back(std::move(system));
#ifdef MX_BENCH_GLOO
  for (AllreduceSystem& system : gloo_systems()) systems.push_back(std::move(system));
#endif
  return systems;
}

}  // namespace mx::bench
