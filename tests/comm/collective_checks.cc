#include "tests/comm/collective_checks.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "comm/fold.h"

namespace mx::comm {
namespace {

int failures = 0;

// Memory with these values.
class Buffer {
 public:
  Buffer(const MemoryKind& kind, const std::vector<char>& values)
      : kind_(kind), bytes_(values.size()), memory_(kind.make(bytes_)) {
    kind_.copy(memory_, values.data(), bytes_);
  }
  ~Buffer() { kind_.free(memory_); }
  Buffer(const Buffer&) = delete;
  void* data() const { return memory_; }
  std::vector<char> values() const {
    std::vector<char> found(bytes_);
    kind_.copy(found.data(), memory_, bytes_);
    return found;
  }

 private:
  const MemoryKind& kind_;
  size_t bytes_;
  void* memory_;
};

bool is_integer(Type type) {
  return type == Type::i8 || type == Type::u8 || type == Type::i32 || type == Type::i64;
}

// The values of a rank: small numbers whose f32 sum depends on the order.
std::vector<char> values_of(Type type, size_t count, int rank, int seed) {
  std::vector<char> bytes(count * size_of(type));
  for (size_t i = 0; i < count; ++i) {
    const auto number =
        static_cast<int64_t>((i * 2654435761u + static_cast<size_t>(rank * 40503 + seed * 977)) % 2003);
    const float real = static_cast<float>(number - 1000) * 0.37f;
    char* const at = bytes.data() + i * size_of(type);
    if (type == Type::f32) {
      std::memcpy(at, &real, sizeof real);
    } else if (type == Type::f64) {
      const double wide = static_cast<double>(real) * 1.1;
      std::memcpy(at, &wide, sizeof wide);
    } else if (type == Type::f16 || type == Type::bf16) {
      const auto bits = static_cast<uint16_t>(0x3c00 + number % 64);
      std::memcpy(at, &bits, sizeof bits);
    } else {
      std::memcpy(at, &number, size_of(type));
    }
  }
  return bytes;
}

std::vector<char> folded(const std::vector<std::vector<char>>& all, Type type, size_t count,
                         Reduction reduction) {
  std::vector<const void*> inputs;
  for (const auto& values : all) inputs.push_back(values.data());
  std::vector<char> result(count * size_of(type));
  fold_ranks(result.data(), inputs.data(), static_cast<int>(all.size()), count, type, reduction);
  return result;
}

void check_reductions(Communicator& group, const MemoryKind& memory, Type type, size_t count) {
  const size_t width = size_of(type), ranks = static_cast<size_t>(group.size());
  const std::string name =
      std::to_string(count) + " x " + to_string(type) + " in memory of the " + memory.name;
  for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max}) {
    std::vector<std::vector<char>> all;
    for (size_t r = 0; r < ranks; ++r) all.push_back(values_of(type, count, static_cast<int>(r), 1));
    const std::vector<char> expected = folded(all, type, count, reduction);
    const Buffer mine(memory, all[static_cast<size_t>(group.rank())]);
    const Buffer out(memory, std::vector<char>(count * width));
    CallOptions options;
    options.reduction = reduction;
    options.what = "key";
    group.allreduce(mine.data(), out.data(), count, type, options);
    expect(out.values() == expected, "allreduce of " + name);
    const Buffer same(memory, mine.values());
    group.allreduce(same.data(), same.data(), count, type, options);
    expect(same.values() == expected, "allreduce in place of " + name);
    const Slice slice = slice_of(count, group.size(), group.rank());
    const Buffer part(memory, std::vector<char>(slice.count * width));
    group.reduce_scatter(mine.data(), part.data(), count, type, options);
    const std::vector<char> found = part.values();
    expect(std::memcmp(found.data(), expected.data() + slice.begin * width, found.size()) == 0,
           "reduce_scatter of " + name);
    const Buffer joined(memory, std::vector<char>(count * width));
    group.allgather(part.data(), joined.data(), count, type);
    expect(joined.values() == expected, "allgather of " + name);
    options.order = Order::any;
    group.allreduce(mine.data(), out.data(), count, type, options);
    // Sums of floating point numbers depend on the order.
    if (reduction != Reduction::sum || is_integer(type))
      expect(out.values() == expected, "allreduce in any order of " + name);
  }
}

void check_moves(Communicator& group, const MemoryKind& memory, Type type, size_t count) {
  const size_t width = size_of(type), ranks = static_cast<size_t>(group.size());
  const std::string name =
      std::to_string(count) + " x " + to_string(type) + " in memory of the " + memory.name;
  const int last = group.size() - 1;
  const std::vector<char> root = values_of(type, count, last, 2);
  const Buffer source(memory, root), out(memory, std::vector<char>(count * width));
  group.broadcast(group.rank() == last ? source.data() : nullptr, out.data(), count, type, last);
  expect(out.values() == root, "broadcast of " + name);
  std::vector<char> blocks, expected;
  for (size_t r = 0; r < ranks; ++r) {
    const auto to = values_of(type, count, group.rank(), static_cast<int>(10 + r));
    blocks.insert(blocks.end(), to.begin(), to.end());
    const auto from = values_of(type, count, static_cast<int>(r), 10 + group.rank());
    expected.insert(expected.end(), from.begin(), from.end());
  }
  const Buffer send(memory, blocks), received(memory, std::vector<char>(ranks * count * width));
  group.all_to_all(send.data(), received.data(), count, type);
  expect(received.values() == expected, "all_to_all of " + name);
  group.all_to_all(send.data(), send.data(), count, type);
  expect(send.values() == expected, "all_to_all in place of " + name);
  if (last == 0) return;
  if (group.rank() == 0) group.send(source.data(), count, type, last);
  if (group.rank() == last) {
    const Buffer message(memory, std::vector<char>(count * width));
    group.receive(message.data(), count, type, 0);
    expect(message.values() == root, "message of " + name);
  }
  group.barrier();
}

}  // namespace

const MemoryKind kHostMemory{"host", [](size_t bytes) { return std::malloc(bytes + 1); },
                             [](void* memory) { std::free(memory); },
                             [](void* to, const void* from, size_t bytes) {
                               if (bytes > 0) std::memcpy(to, from, bytes);
                             }};

int failed_checks() { return failures; }

void expect(bool condition, const std::string& what) {
  if (condition) return;
  ++failures;
  std::fprintf(stderr, "failed: %s\n", what.c_str());
}

void check_collectives(Communicator& group, const MemoryKind& memory) {
  for (const Type type : kAllTypes)
    for (const size_t count : {0, 1, 2, 7, 1000, 4097, 100003}) {
      check_reductions(group, memory, type, count);
      check_moves(group, memory, type, count);
    }
}

int report_checks(int rank, int size) {
  std::printf("rank %d of %d: %s\n", rank, size, failures == 0 ? "passed" : "FAILED");
  std::fflush(stdout);
  return failures == 0 ? 0 : 1;
}

}  // namespace mx::comm
