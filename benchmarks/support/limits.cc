#include "benchmarks/support/limits.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "benchmarks/support/clock.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"

namespace mx::bench {
namespace {

struct alignas(128) PaddedWord {
  std::atomic<int> value{0};
};

template <class F>
double ns_each(long iterations, F&& body) {
  const int64_t start = now_ns();
  for (long i = 0; i < iterations; ++i) body();
  return static_cast<double>(now_ns() - start) / static_cast<double>(iterations);
}

// Runs body() `iterations` times on each of two cores at once. Returns the slower thread's time per
// iteration.
template <class F>
double ns_each_two(int cpu_a, int cpu_b, long iterations, F&& body) {
  std::atomic<int> arrived{0};
  double other = 0;
  const auto run = [&](int cpu) {
    pin_to({cpu});
    arrived.fetch_add(1);
    while (arrived.load() != 2) relax();
    return ns_each(iterations, body);
  };
  double mine = 0;
  std::thread second([&] { other = run(cpu_b); });
  std::thread first([&] { mine = run(cpu_a); });
  first.join();
  second.join();
  return std::max(mine, other);
}

long futex(std::atomic<int>& word, int operation, int value) {
  return syscall(SYS_futex, reinterpret_cast<int*>(&word), operation, value, nullptr, nullptr, 0);
}

void sleep_until(std::atomic<int>& word, int value) {
  for (int seen = word.load(); seen != value; seen = word.load()) futex(word, FUTEX_WAIT_PRIVATE, seen);
}

void set_and_wake(std::atomic<int>& word, int value) {
  word.store(value);
  futex(word, FUTEX_WAKE_PRIVATE, 1);
}

template <size_t kBytes>
double function_ns() {
  struct Capture {
    std::array<void*, kBytes / sizeof(void*)> words;
  } capture{};
  return ns_each(2'000'000, [&] {
    std::function<void()> f([capture] { asm volatile("" ::"m"(capture)); });
    asm volatile("" : "+m"(f));
    f();
  });
}

}  // namespace

double handoff_ns(int cpu_a, int cpu_b, int round_trips) {
  const auto there = std::make_unique<PaddedWord>(), back = std::make_unique<PaddedWord>();
  std::thread other([&] {
    pin_to({cpu_b});
    back->value.store(-1, std::memory_order_release);
    for (int i = 1; i <= round_trips; ++i) {
      while (there->value.load(std::memory_order_acquire) != i) relax();
      back->value.store(i, std::memory_order_release);
    }
  });
  double result = 0;
  std::thread here([&] {
    pin_to({cpu_a});
    while (back->value.load(std::memory_order_acquire) != -1) relax();
    int i = 0;
    result = ns_each(round_trips, [&] {
      there->value.store(++i, std::memory_order_release);
      while (back->value.load(std::memory_order_acquire) != i) relax();
    });
  });
  here.join();
  other.join();
  return result / 2;
}

double atomic_add_own_ns() {
  PaddedWord word;
  return ns_each(10'000'000, [&] { word.value.fetch_add(1); });
}

double atomic_add_shared_ns(int cpu_a, int cpu_b) {
  PaddedWord word;
  return ns_each_two(cpu_a, cpu_b, 3'000'000, [&] { word.value.fetch_add(1); });
}

double mutex_free_ns() {
  std::mutex mutex;
  return ns_each(5'000'000, [&] { std::lock_guard lock(mutex); });
}

double mutex_contended_ns(int cpu_a, int cpu_b) {
  std::mutex mutex;
  return ns_each_two(cpu_a, cpu_b, 1'000'000, [&] { std::lock_guard lock(mutex); });
}

double futex_wake_ns(int cpu_a, int cpu_b) {
  constexpr int kRoundTrips = 5000;
  PaddedWord there, back;
  std::thread other([&] {
    pin_to({cpu_b});
    for (int i = 1; i <= kRoundTrips; ++i) {
      sleep_until(there.value, i);
      set_and_wake(back.value, i);
    }
  });
  double result = 0;
  std::thread here([&] {
    pin_to({cpu_a});
    int i = 0;
    result = ns_each(kRoundTrips, [&] {
      set_and_wake(there.value, ++i);
      sleep_until(back.value, i);
    });
  });
  here.join();
  other.join();
  return result / 2;
}

double futex_wake_idle_ns(int cpu_a, int cpu_b) {
  constexpr int kWakes = 200;
  PaddedWord word;
  std::atomic<int64_t> woken{0};
  std::thread sleeper([&] {
    pin_to({cpu_b});
    for (int i = 1; i <= kWakes; ++i) {
      sleep_until(word.value, i);
      woken.store(now_ns());
    }
  });
  std::vector<double> samples;
  std::thread waker([&] {
    pin_to({cpu_a});
    for (int i = 1; i <= kWakes; ++i) {
      usleep(1000);
      woken.store(0);
      const int64_t start = now_ns();
      set_and_wake(word.value, i);
      while (woken.load() == 0) relax();
      samples.push_back(static_cast<double>(woken.load() - start));
    }
  });
  waker.join();
  sleeper.join();
  return median(samples);
}

double malloc_free_ns(size_t size) {
  return ns_each(3'000'000, [size] {
    void* block = std::malloc(size);
    asm volatile("" : "+r"(block)::"memory");
    std::free(block);
  });
}

double malloc_free_elsewhere_ns(int cpu_a, int cpu_b) {
  constexpr size_t kBlocks = 500'000;
  std::vector<std::atomic<void*>> slots(kBlocks);
  std::thread receiver([&] {
    pin_to({cpu_b});
    for (auto& slot : slots) {
      void* block = nullptr;
      while ((block = slot.load(std::memory_order_acquire)) == nullptr) relax();
      std::free(block);
    }
  });
  const int64_t start = now_ns();
  std::thread sender([&] {
    pin_to({cpu_a});
    for (auto& slot : slots) slot.store(std::malloc(64), std::memory_order_release);
  });
  sender.join();
  receiver.join();
  return static_cast<double>(now_ns() - start) / kBlocks;
}

double clock_ns() {
  return ns_each(1'000'000, [] {
    int64_t now = now_ns();
    asm volatile("" : "+r"(now));
  });
}

double function_ns_16() { return function_ns<16>(); }
double function_ns_48() { return function_ns<48>(); }

double first_touch_ns() {
  constexpr size_t kBytes = size_t{32} << 20, kPage = 4096;
  void* map = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return 0;
  madvise(map, kBytes, MADV_NOHUGEPAGE);
  volatile char* bytes = static_cast<char*>(map);
  size_t at = 0;
  const double result = ns_each(kBytes / kPage, [&] {
    bytes[at] = 1;
    at += kPage;
  });
  munmap(map, kBytes);
  return result;
}

double thread_start_ns() {
  return ns_each(200, [] { std::thread([] {}).join(); });
}

double loop_ns() {
  return ns_each(50, [] { spin(1'000'000); });
}

double loop_beside_ns(int cpu_a, int cpu_b) {
  return ns_each_two(cpu_a, cpu_b, 50, [] { spin(1'000'000); });
}

}  // namespace mx::bench
