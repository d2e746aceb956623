#include "tests/cuda/executor/executor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "ndarray/cuda/host_threads.h"
#include "tests/cuda/executor/fiber.h"

namespace mx::test {
namespace {

using cuda::host::Exchange;
using cuda::host::Index3;
using cuda::host::Place;
using cuda::host::Site;

constexpr unsigned kWarp = 32;
constexpr size_t kMostThreads = 1024, kMostStatic = size_t{48} << 10, kMostShared = size_t{227} << 10;

enum class State : uint8_t { ready, at_barrier, in_exchange, done };

/// What a thread brings to an operation of its warp.
struct Lane {
  Exchange kind{};
  uint64_t value = 0, result = 0;
  int argument = 0;
};

/// One CUDA thread of the block that runs.
struct Thread : Lane {
  Fiber fiber;
  State state = State::ready;
  unsigned rank = 0;  // in the block
  Index3 index;
  Site site;  // of the operation that it waits in
  uint32_t mask = 0;
};

[[noreturn]] void fault(const std::string& what) { throw KernelFault("[cuda executor] " + what); }

struct SharedArray {
  std::unique_ptr<char[]> memory;
  char* data = nullptr;
};

/// Memory that ends where AddressSanitizer finds the next access.
SharedArray shared_array(size_t bytes, size_t alignment) {
  const Unseen unseen;
  SharedArray array;
  array.memory.reset(new char[bytes + alignment]);
  const uintptr_t end = reinterpret_cast<uintptr_t>(array.memory.get()) + bytes + alignment;
  array.data = reinterpret_cast<char*>((end - bytes) & ~(uintptr_t{alignment} - 1));
  std::memset(array.data, 0xFF, bytes);
  return array;
}

/// The grid that runs on this host thread.
class Grid {
 public:
  Grid(Index3 grid, Index3 block, size_t shared_bytes, const std::function<void()>& body);
  ~Grid();
  void run();

  void wait(Thread& thread, State state);
  void* static_shared(const void* key, size_t bytes, size_t alignment);

  Place place;
  Thread* current = nullptr;
  SharedArray dynamic;
  // Addresses that carry the orders of ThreadSanitizer: of the barriers of the block, and of its warps.
  std::unique_ptr<char[]> tags;
  char* barrier_tag() const { return tags.get(); }
  char* warp_tag(size_t warp) const { return tags.get() + 1 + warp; }

 private:
  static void body_of_thread();
  void run_block();
  bool release_exchanges(size_t warp);
  bool release_barrier();

  std::string where(const Thread& thread) const;
  template <class T>
  void arrange(std::vector<T>& items);

  const std::function<void()>& body_;
  const size_t shared_bytes_;
  const size_t threads_, blocks_, warps_;
  const ExecutorOptions options_;
  std::mt19937_64 random_;
  std::map<const void*, SharedArray> static_;
  size_t static_bytes_ = 0;
  std::exception_ptr error_;
  char start_tag_ = 0, end_tag_ = 0, stop_tag_ = 0;
};

thread_local Grid* running = nullptr;
thread_local int64_t launches = 0;

/// The threads of blocks. They are kept, because stacks are large.
std::vector<std::unique_ptr<Thread>>& pool() {
  static thread_local std::vector<std::unique_ptr<Thread>> threads;
  return threads;
}

Grid::Grid(Index3 grid, Index3 block, size_t shared_bytes, const std::function<void()>& body)
    : body_(body),
      shared_bytes_(shared_bytes),
      threads_(size_t{block.x} * block.y * block.z),
      blocks_(size_t{grid.x} * grid.y * grid.z),
      warps_((threads_ + kWarp - 1) / kWarp),
      options_(executor_options()),
      random_(options_.seed) {
  if (threads_ == 0 || threads_ > kMostThreads || block.z > 64)
    fault("expected 1 to 1024 threads in a block, got " + std::to_string(threads_));
  if (blocks_ == 0 || grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535)
    fault("expected a grid of 1 to (2^31-1, 65535, 65535) blocks, got (" + std::to_string(grid.x) + ", " +
          std::to_string(grid.y) + ", " + std::to_string(grid.z) + ")");
  if (shared_bytes > kMostShared)
    fault("expected at most 227 KiB of shared memory, got " + std::to_string(shared_bytes) + " bytes");
  place.block_size = block;
  place.grid_size = grid;
  while (pool().size() < threads_) pool().push_back(std::make_unique<Thread>());
}

template <class T>
void Grid::arrange(std::vector<T>& items) {
  if (options_.order == ThreadOrder::reverse) std::reverse(items.begin(), items.end());
  if (options_.order == ThreadOrder::shuffled) std::shuffle(items.begin(), items.end(), random_);
}

std::string Grid::where(const Thread& thread) const {
  std::ostringstream text;
  text << "thread " << thread.rank << " of block (" << place.block.x << ", " << place.block.y << ", "
       << place.block.z << ") at " << thread.site.file << ':' << thread.site.line;
  return text.str();
}

void Grid::body_of_thread() {
  Grid& grid = *running;
  Thread& thread = *grid.current;
  thread.fiber.entered();
  tsan_acquire(&grid.start_tag_);
  try {
    grid.body_();
  } catch (...) {
    if (grid.error_ == nullptr) grid.error_ = std::current_exception();
  }
  thread.state = State::done;
  tsan_release(&grid.end_tag_);
  thread.fiber.leave(true);
  std::abort();
}

void Grid::wait(Thread& thread, State state) {
  thread.state = state;
  tsan_release(&stop_tag_);
  thread.fiber.leave(false);
}

Grid::~Grid() {
  // After a fault too, the caller's memory is free for others: no thread continues.
  tsan_acquire(&end_tag_);
  tsan_acquire(&stop_tag_);
  const Unseen unseen;
  static_.clear();
  dynamic.memory.reset();
}

void* Grid::static_shared(const void* key, size_t bytes, size_t alignment) {
  const Unseen unseen;
  SharedArray& array = static_[key];
  if (array.data == nullptr) {
    static_bytes_ += bytes;
    if (static_bytes_ > kMostStatic)
      fault("expected at most 48 KiB of static shared memory, got " + std::to_string(static_bytes_) +
            " bytes");
    array = shared_array(bytes, alignment);
  }
  return array.data;
}

/// Computes the results of the lanes in `mask`.
void exchange_values(Thread* const* lanes, unsigned count, uint32_t mask) {
  const auto in = [mask](int lane) { return lane < static_cast<int>(kWarp) && (mask >> lane & 1) != 0; };
  uint32_t ballot = 0;
  for (unsigned k = 0; k < count; ++k)
    if (in(static_cast<int>(k)) && lanes[k]->value != 0) ballot |= uint32_t{1} << k;
  for (unsigned k = 0; k < count; ++k) {
    Lane& lane = *lanes[k];
    int from = static_cast<int>(k);
    if (!in(from) || lane.kind == Exchange::sync) continue;
    if (lane.kind == Exchange::ballot) {
      lane.result = ballot;
      continue;
    }
    if (lane.kind == Exchange::shuffle) from = lane.argument & 31;
    if (lane.kind == Exchange::shuffle_xor) from ^= lane.argument;
    if (lane.kind == Exchange::shuffle_up && from >= lane.argument) from -= lane.argument;
    if (lane.kind == Exchange::shuffle_down && from + lane.argument < 32) from += lane.argument;
    // The value of a lane that does not take part is undefined: NaN.
    lane.result = in(from) ? lanes[from]->value : ~uint64_t{0};
  }
}

/// Completes the operations of a warp in which all their lanes have arrived.
bool Grid::release_exchanges(size_t warp) {
  const size_t first = warp * kWarp;
  const auto count = static_cast<unsigned>(std::min<size_t>(kWarp, threads_ - first));
  Thread* lanes[kWarp];
  for (unsigned k = 0; k < count; ++k) lanes[k] = pool()[first + k].get();
  bool any = false;
  for (unsigned i = 0; i < count; ++i) {
    const Thread& t = *lanes[i];
    if (t.state != State::in_exchange) continue;
    bool all = true;
    for (unsigned k = 0; k < kWarp && all; ++k) {
      if ((t.mask >> k & 1) == 0) continue;
      if (k >= count || lanes[k]->state == State::done)
        fault("expected lanes that run, got a mask with lane " + std::to_string(k) +
              ", which has ended or does not exist: " + where(t));
      all = lanes[k]->state == State::in_exchange && lanes[k]->mask == t.mask && lanes[k]->kind == t.kind &&
            lanes[k]->site == t.site;
    }
    if (!all) continue;
    const uint32_t mask = t.mask;
    exchange_values(lanes, count, mask);
    for (unsigned k = 0; k < count; ++k)
      if ((mask >> k & 1) != 0) lanes[k]->state = State::ready;
    any = true;
  }
  return any;
}

/// Lets the threads continue after a barrier that all of them have reached.
bool Grid::release_barrier() {
  size_t waiting = 0, ended = 0;
  const Thread* first = nullptr;
  for (size_t i = 0; i < threads_; ++i) {
    const Thread& t = *pool()[i];
    if (t.state == State::done) ++ended;
    if (t.state != State::at_barrier) continue;
    ++waiting;
    if (first == nullptr) first = &t;
    if (!(t.site == first->site))
      fault("expected all threads at one barrier, got " + where(*first) + ", and " + where(t));
  }
  if (waiting == 0 || waiting + ended < threads_) return false;
  if (ended > 0)
    fault("expected all threads of the block at a barrier, got " + std::to_string(ended) +
          " that have ended: " + where(*first));
  for (size_t i = 0; i < threads_; ++i) pool()[i]->state = State::ready;
  return true;
}

void Grid::run_block() {
  {
    const Unseen unseen;
    static_.clear();
    static_bytes_ = 0;
    // Each block has its own: the barriers of a block do not order what other blocks do.
    tags = std::make_unique<char[]>(1 + warps_);
    dynamic = shared_array(shared_bytes_, 16);
  }
  const Index3 size = place.block_size;
  for (size_t i = 0; i < threads_; ++i) {
    Thread& t = *pool()[i];
    t.state = State::ready;
    t.rank = static_cast<unsigned>(i);
    t.site = {};
    t.index = {t.rank % size.x, t.rank / size.x % size.y, t.rank / size.x / size.y};
    t.fiber.prepare(body_of_thread);
  }
  std::vector<Thread*> ready;
  while (true) {
    ready.clear();
    for (size_t i = 0; i < threads_; ++i)
      if (pool()[i]->state == State::ready) ready.push_back(pool()[i].get());
    if (ready.empty()) return;
    arrange(ready);
    for (Thread* thread : ready) {
      current = thread;
      place.thread = thread->index;
      thread->fiber.enter();
      if (error_ != nullptr) std::rethrow_exception(error_);
    }
    bool progress = false;
    for (size_t warp = 0; warp < warps_; ++warp) progress |= release_exchanges(warp);
    if (!progress) progress = release_barrier();
    if (progress) continue;
    for (size_t i = 0; i < threads_; ++i)
      if (pool()[i]->state != State::done)
        fault("expected threads that meet, but none can go on: " + where(*pool()[i]) +
              (pool()[i]->state == State::at_barrier ? " waits at a barrier" : " waits for its warp"));
  }
}

void Grid::run() {
  struct Scope {
    Grid* outer;
    ~Scope() { running = outer; }
  } scope{running};
  if (running != nullptr) fault("expected a launch by the host, got one inside a kernel");
  running = this;
  ++launches;
  Fiber::begin_launch();
  tsan_release(&start_tag_);
  std::vector<size_t> order(blocks_);
  for (size_t i = 0; i < blocks_; ++i) order[i] = i;
  arrange(order);
  for (const size_t n : order) {
    const Index3 size = place.grid_size;
    place.block = {static_cast<unsigned>(n % size.x), static_cast<unsigned>(n / size.x % size.y),
                   static_cast<unsigned>(n / size.x / size.y)};
    run_block();
  }
}

}  // namespace

ExecutorOptions& executor_options() {
  static thread_local ExecutorOptions options;
  return options;
}

int64_t executor_launches() { return launches; }

}  // namespace mx::test

namespace mx::cuda::host {

using test::running;

const Place& place() { return running->place; }

void run(Index3 grid, Index3 block, size_t shared_bytes, const std::function<void()>& body) {
  test::Grid(grid, block, shared_bytes, body).run();
}

void barrier(Site site) {
  test::Grid& grid = *running;
  test::Thread& thread = *grid.current;
  thread.site = site;
  test::tsan_release(grid.barrier_tag());
  grid.wait(thread, test::State::at_barrier);
  test::tsan_acquire(grid.barrier_tag());
}

uint64_t exchange(Exchange kind, Site site, uint32_t lanes, uint64_t value, int argument) {
  test::Grid& grid = *running;
  test::Thread& thread = *grid.current;
  thread.site = site;
  if ((lanes >> (thread.rank % test::kWarp) & 1) == 0)
    test::fault("expected a mask with the calling lane, got one without it");
  thread.kind = kind;
  thread.mask = lanes;
  thread.value = value;
  thread.argument = argument;
  char* const tag = grid.warp_tag(thread.rank / test::kWarp);
  if (kind == Exchange::sync) test::tsan_release(tag);
  grid.wait(thread, test::State::in_exchange);
  if (kind == Exchange::sync) test::tsan_acquire(tag);
  return thread.result;
}

void* static_shared(const void* key, size_t bytes, size_t alignment) {
  return running->static_shared(key, bytes, alignment);
}

void* dynamic_shared() { return running->dynamic.data; }

void check_aligned(const void* address, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0)
    test::fault("expected an address that is a multiple of " + std::to_string(alignment) +
                ", got one with the rest " +
                std::to_string(reinterpret_cast<uintptr_t>(address) % alignment));
}

}  // namespace mx::cuda::host
