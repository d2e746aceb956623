// A process of a job whose values lie on several virtual devices: devices_program TYPE DEVICES [MODE]
//   (none)   sums of every type are the left fold over the devices, and then over the processes; sums that
//            are exact are those of one process with all devices
//   fewer    rank 1 has one device; sums go on
//   mean     the same, with the mean, of which the numbers of values must be equal
//   order    rank 1 pushes "b" before "a"
//   place    rank 1 has its values in other memory than the others, in another order of devices; sums go on
//   killed   rank 1 dies between two rounds
//   fails    an operation on a device of rank 1 fails, of which the value depends
// A process that meets an error prints it and ends with 3.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "kvstore/kvstore.h"
#include "operators/operators.h"

namespace {

using namespace mx;

constexpr int64_t kRows = 7, kColumns = 301;

/// The value of a device of a process: numbers whose sum depends on the order, or small integers.
NDArray value(int rank, int device, DType type, bool exact) {
  std::vector<float> numbers(static_cast<size_t>(kRows * kColumns));
  uint64_t state = 0x9e3779b97f4a7c15u * static_cast<uint64_t>(rank * 16 + device + 1);
  for (float& number : numbers) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto random = static_cast<float>(state >> 40);  // 24 bits
    number = exact ? static_cast<float>(state >> 61) : (random - 8e6f) * ((state & 1) != 0 ? 1e-6f : 1e-3f);
  }
  return array(numbers).reshape({kRows, kColumns}).to(type);
}

/// The bits of an array, wherever it is.
std::vector<char> bits(const NDArray& x) {
  const std::vector<double> numbers = x.to(cpu()).to(f64).to_vector<double>();
  std::vector<char> bytes(numbers.size() * sizeof(double));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

void expect_same(const NDArray& got, const NDArray& expected, const std::string& what) {
  if (bits(got) != bits(expected)) throw Error(what + " differs");
}

class Program {
 public:
  Program(const std::string& type, int devices, std::string mode)
      : kv_(KVStore::create(type)), mode_(std::move(mode)) {
    for (int r = 0; r < kv_->size(); ++r) counts_.push_back(mode_is_fewer() && r == 1 ? 1 : devices);
  }

  void run() {
    if (mode_ == "mean") return run_mean();
    if (mode_ == "order" || mode_ == "killed" || mode_ == "fails") return run_pushes();
    for (const DType type : {f32, f64, f16, bf16, i32, i64})
      for (const bool exact : {false, true}) check_sums(type, exact);
    check_list();
  }

 private:
  bool mode_is_fewer() const { return mode_ == "fewer" || mode_ == "mean"; }
  int rank() const { return kv_->rank(); }
  int devices() const { return counts_[static_cast<size_t>(rank())]; }
  Context device(int k) const { return virt(mode_ == "place" && rank() == 1 ? devices() - 1 - k : k); }

  std::vector<NDArray> values(DType type, bool exact) const {
    std::vector<NDArray> all;
    for (int k = 0; k < devices(); ++k) all.push_back(value(rank(), k, type, exact).to(device(k)));
    return all;
  }
  std::vector<NDArray> outs(DType type) const {
    std::vector<NDArray> all;
    for (int k = 0; k < devices(); ++k) all.push_back(zeros({kRows, kColumns}, type, device(k)));
    return all;
  }

  /// (p0d0 + p0d1) + (p1d0 + p1d1) + ..., on the CPU.
  NDArray folded(DType type, DType sum_type, bool exact) const {
    NDArray all;
    for (size_t r = 0; r < counts_.size(); ++r) {
      NDArray own;
      for (int k = 0; k < counts_[r]; ++k) {
        const NDArray next = value(static_cast<int>(r), k, type, exact).to(sum_type);
        own = k == 0 ? next : own + next;
      }
      all = r == 0 ? own : all + own;
    }
    return all;
  }

  void check_sums(DType type, bool exact) {
    const DType sum_type = !is_floating(type) ? i64 : type == f64 ? f64 : f32;
    const std::string name = std::string(to_string(type)) + (exact ? " exact" : "");
    const NDArray expected = folded(type, sum_type, exact);
    kv_->init(name, zeros({kRows, kColumns}, sum_type));
    kv_->push(name, values(type, exact));
    const std::vector<NDArray> pulled = outs(sum_type);
    kv_->pull(name, pulled);
    for (const NDArray& out : pulled) expect_same(out, expected, "the sum of " + name);
    const std::vector<NDArray> first = outs(sum_type);
    kv_->allreduce({name + " once"}, {values(type, exact)}, {first[0]});
    expect_same(first[0], expected, "allreduce of " + name);
    if (!exact) return;
    // One process with all devices, which adds one after the other.
    const auto one = KVStore::create("device");
    one->init(name, zeros({kRows, kColumns}, sum_type));
    std::vector<NDArray> all;
    for (size_t r = 0; r < counts_.size(); ++r)
      for (int k = 0; k < counts_[r]; ++k)
        all.push_back(value(static_cast<int>(r), k, type, exact).to(virt(k)));
    one->push(name, all);
    NDArray alone = zeros({kRows, kColumns}, sum_type);
    one->pull(name, alone);
    expect_same(alone, expected, "the sum of one process of " + name);
  }

  /// Several keys in one call, which travel in one message.
  void check_list() {
    std::vector<KVKey> keys;
    std::vector<KVStore::Values> pushed, pulled;
    std::vector<std::vector<NDArray>> arrays;
    for (int k = 0; k < 3; ++k) {
      keys.emplace_back("list " + std::to_string(k));
      kv_->init(keys.back(), zeros({kRows, kColumns}));
      pushed.emplace_back(values(f32, false));
      arrays.push_back(outs(f32));
      pulled.emplace_back(arrays.back());
    }
    kv_->pushpull(keys, pushed, pulled);
    for (const auto& list : arrays)
      for (const NDArray& out : list) expect_same(out, folded(f32, f32, false), "the sum of a list");
  }

  void run_mean() {
    const std::vector<NDArray> out = outs(f32);
    kv_->allreduce({"mean"}, {values(f32, false)}, {out[0]}, {.reduce = KVReduce::mean});
    out[0].wait();
  }

  void run_pushes() {
    std::vector<std::string> keys{"a", "b"};
    for (const std::string& key : keys) kv_->init(key, zeros({kRows, kColumns}));
    for (int round = 0; round < 4; ++round) {
      const bool wrong = rank() == 1 && round == 2;
      if (wrong && mode_ == "killed") kill(getpid(), SIGKILL);
      for (int i = 0; i < 2; ++i) {
        const size_t at = static_cast<size_t>(wrong && mode_ == "order" ? 1 - i : i);
        std::vector<NDArray> pushed = values(f32, false);
        if (wrong && mode_ == "fails" && i == 1)
          current_engine().push([] { throw Error("the kernel is broken"); },
                                {.updates = {pushed.back().var()}, .name = "kernel"});
        kv_->push(keys[at], pushed);
      }
      for (const std::string& key : keys) {
        const std::vector<NDArray> pulled = outs(f32);
        kv_->pull(key, pulled);
        for (const NDArray& out : pulled) expect_same(out, folded(f32, f32, false), "the sum of " + key);
      }
    }
  }

  const std::shared_ptr<KVStore> kv_;
  const std::string mode_;
  std::vector<int> counts_;  // of devices, by rank
};

}  // namespace

int main(int argc, char** argv) {
  try {
    Program(argv[1], std::stoi(argv[2]), argc > 3 ? argv[3] : "").run();
    std::printf("has ended\n");
    return 0;
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 3;
  }
}
