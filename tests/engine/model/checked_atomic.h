// CheckedAtomic has the members of std::atomic that the engine uses. Before each access it lets the explorer
// decide which thread continues. TornAtomic is deliberately broken, to show that a check can fail.
#pragma once

#include <atomic>
#include <cstdint>

namespace mx::test::model {

/// A location in shared memory. The explorer knows it from its construction until the next Model::reset().
struct Cell {
  uint64_t bits = 0;
  uint32_t changes = 0;  // number of times that the value has changed
  uint32_t index = 0;

  explicit Cell(uint64_t initial);
  Cell(const Cell&) = delete;

  // Each access is one step of the thread. Outside the threads of a model, an access is just performed.
  void before(const char* what) const;  // the scheduling point
  void after(uint64_t seen) const;      // reports the value that the thread has seen
  void set(uint64_t value) {
    changes += bits != value;
    bits = value;
  }
};

template <class T>
class CheckedAtomic {
 public:
  CheckedAtomic() : CheckedAtomic(T{}) {}
  CheckedAtomic(T value) : cell_(static_cast<uint64_t>(value)) {}

  T load(std::memory_order = std::memory_order_seq_cst) const {
    cell_.before("load");
    return seen(get());
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst) {
    cell_.before("store");
    put(value);
    cell_.after(0);
  }
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst) {
    return modify("exchange", order, [&](T) { return value; });
  }
  T fetch_add(T n, std::memory_order order = std::memory_order_seq_cst) {
    return modify("fetch_add", order, [&](T old) { return static_cast<T>(old + n); });
  }
  T fetch_sub(T n, std::memory_order order = std::memory_order_seq_cst) {
    return modify("fetch_sub", order, [&](T old) { return static_cast<T>(old - n); });
  }
  T fetch_or(T n, std::memory_order order = std::memory_order_seq_cst) {
    return modify("fetch_or", order, [&](T old) { return static_cast<T>(old | n); });
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order = std::memory_order_seq_cst,
                               std::memory_order = std::memory_order_seq_cst) {
    cell_.before("compare_exchange");
    const T old = get();
    const bool equal = old == expected;
    if (equal) put(desired);
    expected = seen(old);
    return equal;
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst) {
    return compare_exchange_strong(expected, desired, order);
  }

 private:
  template <class F>
  T modify(const char* what, std::memory_order, F&& f) {
    cell_.before(what);
    const T old = get();
    put(f(old));
    return seen(old);
  }
  T get() const { return static_cast<T>(cell_.bits); }
  void put(T value) { cell_.set(static_cast<uint64_t>(value)); }
  T seen(T value) const {
    cell_.after(static_cast<uint64_t>(value));
    return value;
  }

  Cell cell_;
};

/// Its read-modify-write operations are a separate read and write, so other threads may run in between.
template <class T>
class TornAtomic : public CheckedAtomic<T> {
 public:
  using CheckedAtomic<T>::CheckedAtomic;
  using CheckedAtomic<T>::load;
  using CheckedAtomic<T>::store;

  T exchange(T value, std::memory_order = std::memory_order_seq_cst) {
    const T old = load();
    store(value);
    return old;
  }
  T fetch_add(T n, std::memory_order = std::memory_order_seq_cst) {
    const T old = load();
    store(static_cast<T>(old + n));
    return old;
  }
  T fetch_or(T n, std::memory_order = std::memory_order_seq_cst) {
    const T old = load();
    store(static_cast<T>(old | n));
    return old;
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order = std::memory_order_seq_cst,
                               std::memory_order = std::memory_order_seq_cst) {
    const T old = load();
    const bool equal = old == expected;
    if (equal) store(desired);
    expected = old;
    return equal;
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst) {
    return compare_exchange_strong(expected, desired, order);
  }
};

}  // namespace mx::test::model
