#include "comm/shm/shm_communicator.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "comm/check_rank.h"
#include "comm/host_name.h"
#include "comm/queued_communicator.h"
#include "comm/shm/bootstrap.h"
#include "comm/shm/group.h"
#include "engine/base/check.h"
#include "engine/base/cpus.h"

namespace mx::comm {
namespace {

// Up to some ten microseconds of work, now and then; the same pauses for the same seed.
std::function<void()> pauses(uint64_t seed, int rank) {
  if (seed == 0) return {};
  // Calls and allocations come from several threads.
  const auto steps = std::make_shared<std::atomic<uint64_t>>(seed * 1000 + static_cast<uint64_t>(rank));
  return [steps] {
    uint64_t bits = steps->fetch_add(1000'003, std::memory_order_relaxed) * 0x9e3779b97f4a7c15;
    bits ^= bits >> 29;
    if (bits % 4 != 0) return;
    for (uint64_t n = bits / 4 % 10'000; n > 0; --n) cpu_relax();
    if (bits / 4 % 64 == 0) std::this_thread::yield();
  };
}

class ShmCommunicator final : public QueuedCommunicator {
 public:
  ShmCommunicator(int region, Fd arena, size_t window_bytes, int rank, int size, const ShmOptions& options)
      : rank_(rank),
        size_(size),
        timeout_ms_(options.timeout_ms),
        group_(region, shm::Arena::map(std::move(arena), rank, size, window_bytes), rank, size,
               {options.noticed_loss, options.noticed_timeout, options.explain_loss, options.check,
                pauses(options.delay_seed, rank)}) {}
  ~ShmCommunicator() override { finish_calls(); }

  void join(const std::string& host, Deadline deadline) { group_.join(host, deadline); }

  const std::string& type() const override {
    static const std::string name = "shm";
    return name;
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host(int rank) const override {
    check_rank("host", rank, size_);
    return group_.host(rank);
  }
  int64_t default_timeout_ms() const override { return timeout_ms_; }

 protected:
  std::shared_ptr<void> allocate_here(size_t bytes) override {
    if (const std::exception_ptr error = failure()) std::rethrow_exception(error);
    std::shared_ptr<void> memory = group_.allocate(bytes, Deadline::after_ms(timeout_ms_));
    return memory != nullptr ? memory : Communicator::allocate(bytes);
  }
  void execute(const Request& request, Deadline deadline) override { group_.execute(request, deadline); }
  void interrupt(std::exception_ptr reason) override { group_.interrupt(std::move(reason)); }
  void disconnect() noexcept override { group_.leave(); }

 private:
  const int rank_, size_;
  const int64_t timeout_ms_;
  shm::Group group_;
};

std::string shm_host_name(const ShmOptions& options) {
  return options.host.empty() ? host_name() : options.host;
}

shm::SharedFiles make_shm_files(int size, const ShmOptions& options) {
  shm::SharedFiles files;
  files.window_bytes = options.arena_window_bytes > 0 ? shm::whole_pages(options.arena_window_bytes)
                                                      : shm::Arena::default_window(size);
  files.region = shm::Region::create(size);
  files.arena = shm::Arena::create(size, files.window_bytes);
  return files;
}

void check_shm_group(int rank, int size) {
  constexpr int kMostRanks = 1024;
  MX_CHECK(size >= 1 && size <= kMostRanks, InvalidArgument, "[shm] expected 1 to ", kMostRanks,
           " ranks, got ", size);
  check_rank("shm", rank, size);
}

// The files stay open: rank 0 still passes them on.
std::shared_ptr<ShmCommunicator> map_shm_files(const shm::SharedFiles& files, int rank, int size,
                                               const ShmOptions& options) {
  Fd arena;
  if (files.arena) arena = Fd(fcntl(files.arena.get(), F_DUPFD_CLOEXEC, 0));
  return std::make_shared<ShmCommunicator>(files.region.get(), std::move(arena), files.window_bytes, rank,
                                           size, options);
}

}  // namespace

std::shared_ptr<Communicator> make_shm_communicator(int rank, int size, Rendezvous& rendezvous,
                                                    const std::string& key, const ShmOptions& options) {
  check_shm_group(rank, size);
  const shm::Joining joining{
      rendezvous, key, Deadline::after_ms(options.join_timeout_ms), options.check, options.noticed_timeout,
      {}};
  std::shared_ptr<ShmCommunicator> made;
  shm::share_files(
      rank, size, joining, [&] { return make_shm_files(size, options); },
      [&](const shm::SharedFiles& files) { made = map_shm_files(files, rank, size, options); });
  made->join(shm_host_name(options), joining.deadline);
  return made;
}

struct ShmGroup::Memory {
  shm::SharedFiles files;
  int size;
  ShmOptions options;
};

ShmGroup::ShmGroup(int size, const ShmOptions& options)
    : memory_((check_shm_group(0, size), new Memory{make_shm_files(size, options), size, options})) {}

ShmGroup::~ShmGroup() = default;

std::shared_ptr<Communicator> ShmGroup::join(int rank) const {
  check_shm_group(rank, memory_->size);
  auto made = map_shm_files(memory_->files, rank, memory_->size, memory_->options);
  made->join(shm_host_name(memory_->options), Deadline::after_ms(memory_->options.join_timeout_ms));
  return made;
}

}  // namespace mx::comm
