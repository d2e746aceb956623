// Runs every collective of the module for MPI in each process of `mpirun`, and compares with the serial fold.
//
// Usage: mpirun -n N comm_mpi_program [mismatch | timeout | own]
//   mismatch: rank 1 calls with another count; every rank must get a ProtocolError
//   timeout:  rank 1 makes no call; the others must get a Timeout
//   own:      the program initialises and finalises MPI itself
// Prints "rank R of N: passed" and exits 0 if everything holds.
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "comm/fold.h"
#include "comm/module.h"
#include "engine/base/error.h"

namespace {

using namespace mx::comm;

int failures = 0;

void expect(bool condition, const std::string& what) {
  if (condition) return;
  ++failures;
  std::fprintf(stderr, "failed: %s\n", what.c_str());
}

Place place_of_mpirun() {
  Place place;
  place.started_by = "mpirun";
  place.rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
  place.size = std::atoi(std::getenv("OMPI_COMM_WORLD_SIZE"));
  return place;
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

void check_reductions(Communicator& group, Type type, size_t count) {
  const size_t width = size_of(type), ranks = static_cast<size_t>(group.size());
  const std::string name = std::to_string(count) + " x " + to_string(type);
  for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max}) {
    std::vector<std::vector<char>> all;
    for (size_t r = 0; r < ranks; ++r) all.push_back(values_of(type, count, static_cast<int>(r), 1));
    const std::vector<char> expected = folded(all, type, count, reduction);
    std::vector<char> mine = all[static_cast<size_t>(group.rank())], out(mine.size());
    CallOptions options;
    options.reduction = reduction;
    options.what = "key";
    group.allreduce(mine.data(), out.data(), count, type, options);
    expect(out == expected, "allreduce of " + name);
    std::vector<char> same = mine;
    group.allreduce(same.data(), same.data(), count, type, options);
    expect(same == expected, "allreduce in place of " + name);
    const Slice slice = slice_of(count, group.size(), group.rank());
    std::vector<char> part(slice.count * width);
    group.reduce_scatter(mine.data(), part.data(), count, type, options);
    expect(std::memcmp(part.data(), expected.data() + slice.begin * width, part.size()) == 0,
           "reduce_scatter of " + name);
    group.allgather(part.data(), out.data(), count, type);
    expect(out == expected, "allgather of " + name);
    options.order = Order::any;
    group.allreduce(mine.data(), out.data(), count, type, options);
    if (type != Type::f32 && type != Type::f64) expect(out == expected, "allreduce in any order of " + name);
  }
}

void check_moves(Communicator& group, Type type, size_t count) {
  const size_t width = size_of(type), ranks = static_cast<size_t>(group.size());
  const std::string name = std::to_string(count) + " x " + to_string(type);
  const int last = group.size() - 1;
  std::vector<char> out(count * width);
  const std::vector<char> root = values_of(type, count, last, 2);
  group.broadcast(group.rank() == last ? root.data() : nullptr, out.data(), count, type, last);
  expect(out == root, "broadcast of " + name);
  std::vector<char> send, received(ranks * count * width), expected;
  for (size_t r = 0; r < ranks; ++r) {
    const auto to = values_of(type, count, group.rank(), static_cast<int>(10 + r));
    send.insert(send.end(), to.begin(), to.end());
    const auto from = values_of(type, count, static_cast<int>(r), 10 + group.rank());
    expected.insert(expected.end(), from.begin(), from.end());
  }
  group.all_to_all(send.data(), received.data(), count, type);
  expect(received == expected, "all_to_all of " + name);
  group.all_to_all(send.data(), send.data(), count, type);
  expect(send == expected, "all_to_all in place of " + name);
  if (last == 0) return;
  if (group.rank() == 0) group.send(root.data(), count, type, last);
  if (group.rank() == last) {
    std::vector<char> message(count * width);
    group.receive(message.data(), count, type, 0);
    expect(message == root, "message of " + name);
  }
  group.barrier();
}

template <class E>
void expect_error(Communicator& group, size_t count, const std::string& part) {
  std::vector<float> values(count, 1.f);
  CallOptions options;
  options.timeout_ms = 1500;
  options.what = "fc1.weight";
  try {
    group.allreduce(values.data(), values.data(), count, Type::f32, options);
    expect(false, "expected an error");
  } catch (const E& e) {
    expect(std::string(e.what()).find(part) != std::string::npos, std::string("message: ") + e.what());
  }
  expect(group.failure() != nullptr, "the group remembers its failure");
}

// A callback may hold the last reference to its group, and a call may be running when the process ends.
void check_ends(const Place& place) {
  // Never destroyed: the calls use it until the very end of the process.
  static auto& values = *new std::vector<float>(1000, 1.f);
  for (int i = 0; i < 40; ++i) {
    auto group = load_module("mpi").make({place, nullptr, "end" + std::to_string(i), 60000});
    Request request{Collective::allreduce, values.data(), values.data(), values.size(), Type::f32, 0, {}, {}};
    request.done = [group](std::exception_ptr error) {
      expect(error == nullptr, "the last call of a group");
    };
    Communicator& started = *group;
    group = nullptr;
    started.start(std::move(request));
  }
}

// A program may initialise and finalise MPI itself, even while a group lives.
int use_own_mpi() {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  const Place place = place_of_mpirun();
  const auto group = load_module("mpi").make({place, nullptr, "own", 60000});
  float value = 1;
  group->allreduce(&value, &value, 1, Type::f32);
  expect(value == static_cast<float>(place.size), "the sum before MPI_Finalize");
  MPI_Finalize();
  expect_error<mx::InvalidState>(*group, 1, "finalised");
  std::printf("rank %d of %d: %s\n", place.rank, place.size, failures == 0 ? "passed" : "FAILED");
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "own") return use_own_mpi();
  const Place place = place_of_mpirun();
  const auto group = load_module("mpi").make({place, nullptr, "test", 60000});
  const std::string shared = load_module("mpi").share_from_first(place, place.rank == 0 ? "address" : "");
  expect(shared == "address", "share_from_first");
  if (mode == "mismatch") {
    expect_error<mx::ProtocolError>(*group, place.rank == 1 ? 200001 : 200000, "fc1.weight");
  } else if (mode == "timeout") {
    if (place.rank != 1) expect_error<mx::Timeout>(*group, 200000, "fc1.weight");
    // Rank 1 stays until the others have missed it, because mpirun ends the job when a process leaves.
    if (place.rank == 1) sleep(4);
  } else {
    for (const Type type : kAllTypes)
      for (const size_t count : {0, 1, 2, 7, 1000, 4097, 100003}) {
        check_reductions(*group, type, count);
        check_moves(*group, type, count);
      }
  }
  if (mode.empty()) check_ends(place);
  std::printf("rank %d of %d: %s\n", place.rank, place.size, failures == 0 ? "passed" : "FAILED");
  std::fflush(stdout);
  // After a failure other processes may wait in MPI for ever; leave without its clean-up.
  if (!mode.empty()) _exit(failures == 0 ? 0 : 1);
  return failures == 0 ? 0 : 1;
}
