// Runs every collective of the module for NCCL in each process of a job, and compares with the serial fold.
//
// Usage: mxrun -n N comm_nccl_program [MODE]
//   leaves:  rank 1 destroys its group; the others must get an error within their time limit
//   aborts:  rank 1 aborts its group; the same
//   timeout: rank 1 makes no call; the others must get a Timeout
//   count, type, name, barrier, message: rank 1 makes another call than the others, which differs in that;
//            every rank must get a ProtocolError that describes both, and no data moves
//   fork:    a child of rank 0 may only destroy its copy of the group
// Prints "rank R of N: passed" and exits 0 if everything holds, "no GPU here" where there is none.
//
// NCCL refuses two ranks on one GPU of one host. If there are fewer GPUs than ranks, each process names a
// host of its own to NCCL, whose traffic then takes the way between hosts.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/world.h"
#include "engine/base/error.h"
#include "tests/comm/collective_checks.h"
#include "tests/support/forking.h"

namespace {

using namespace mx::comm;

const MemoryKind kDeviceMemory{"device",
                               [](size_t bytes) {
                                 void* memory = nullptr;
                                 expect(cudaMalloc(&memory, bytes + 1) == cudaSuccess, "cudaMalloc");
                                 return memory;
                               },
                               [](void* memory) { expect(cudaFree(memory) == cudaSuccess, "cudaFree"); },
                               [](void* to, const void* from, size_t bytes) {
                                 expect(cudaMemcpy(to, from, bytes, cudaMemcpyDefault) == cudaSuccess,
                                        "cudaMemcpy");
                               }};

CallOptions named(const std::string& what) {
  CallOptions options;
  options.what = what;
  options.timeout_ms = 3000;
  return options;
}

// The others' calls end with an error soon after rank 1 has gone or made no call.
void check_missing_rank(std::shared_ptr<Communicator> group, const std::string& mode) {
  const int rank = group->rank();
  float values[10] = {};
  group->allreduce(values, values, 10, Type::f32, named("fc1.weight"));
  if (rank == 1) {
    if (mode == "aborts") group->abort(std::make_exception_ptr(mx::Cancelled("by rank 1")));
    if (mode != "timeout") group = nullptr;
    // The process stays, because the end of a process would end the job.
    std::this_thread::sleep_for(std::chrono::seconds(8));
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  try {
    group->allreduce(values, values, 10, Type::f32, named("fc1.weight"));
    expect(false, "expected an error of the call");
  } catch (const mx::Error& e) {
    const std::string text = e.what();
    expect(text.find("fc1.weight") != std::string::npos, "the error names the call: " + text);
    const bool right = mode == "timeout" ? dynamic_cast<const mx::Timeout*>(&e) != nullptr
                                         : dynamic_cast<const mx::PeerLost*>(&e) != nullptr;
    expect(right, "the type of the error: " + text);
    std::fprintf(stderr, "rank %d: %s\n", rank, text.c_str());
  }
  expect(std::chrono::steady_clock::now() - start < std::chrono::seconds(10), "the error comes in time");
  expect(group->failure() != nullptr, "the group remembers its failure");
}

// What the calls of rank 1 and of the others are in messages.
struct Calls {
  const char *wrong, *right;
};

// Rank 1 makes another call than the others, with buffers on the GPU.
void check_mismatch(Communicator& group, const std::string& mode) {
  const bool wrong = group.rank() == 1;
  constexpr size_t kCount = 1000;
  const std::vector<float> before(kCount, -7.f);
  const auto buffer = [&] {
    void* const memory = kDeviceMemory.make(kCount * sizeof(float));
    kDeviceMemory.copy(memory, before.data(), kCount * sizeof(float));
    return memory;
  };
  void *const in = buffer(), *const out = buffer();
  const std::map<std::string, Calls> calls{{"count", {"of 999 x f32", "of 1000 x f32"}},
                                           {"type", {"x i32", "x f32"}},
                                           {"name", {"'fc1.bias'", "'fc1.weight'"}},
                                           {"barrier", {"barrier", "allreduce of 1000"}},
                                           {"message", {"receive of 5 x f32", "allreduce of 1000"}}};
  CallOptions options = named(wrong && mode == "name" ? "fc1.bias" : "fc1.weight");
  options.order = Order::any;
  for (int i = 0; i < 3; ++i) group.barrier();
  try {
    if (wrong && mode == "barrier")
      group.barrier();
    else if (wrong && mode == "message")
      group.receive(out, 5, Type::f32, 0);
    else
      group.allreduce(in, out, wrong && mode == "count" ? kCount - 1 : kCount,
                      wrong && mode == "type" ? Type::i32 : Type::f32, options);
    expect(false, "expected an error of the call");
  } catch (const mx::ProtocolError& e) {
    const std::string text = e.what();
    for (const char* part : {calls.at(mode).wrong, calls.at(mode).right})
      expect(text.find(part) != std::string::npos, std::string(part) + " is in the message: " + text);
  } catch (const std::exception& e) {
    expect(false, std::string("expected a ProtocolError instead of: ") + e.what());
  }
  std::vector<float> after(kCount);
  kDeviceMemory.copy(after.data(), out, kCount * sizeof(float));
  expect(after == before, "no data moves");
  expect(group.failure() != nullptr, "the group remembers its failure");
}

void check_fork(std::shared_ptr<Communicator> group) {
  if (group->rank() == 0) {
    const auto child = [&] {
      const bool refused = mx::test::is_refused([&] { group->barrier(); });
      group = nullptr;
      return refused ? 0 : 1;
    };
    const std::string end = mx::test::run_in_child(child, fork);
    expect(end == "exit code 0", "the end of the child: " + end);
  }
  float value = 1;
  group->allreduce(&value, &value, 1, Type::f32);
  expect(value == static_cast<float>(group->size()), "the sum after the fork");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const Place& here = place();
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::puts("no GPU here");
    return 0;
  }
  cudaSetDevice(here.local_rank % gpus);
  if (gpus < here.size) {
    setenv("NCCL_HOSTID", ("rank" + std::to_string(here.rank)).c_str(), 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  }
  setenv("MX_TRANSPORT", "nccl", 1);
  std::shared_ptr<Communicator> group = world();
  if (mode == "fork") {
    check_fork(group);
  } else if (mode == "count" || mode == "type" || mode == "name" || mode == "barrier" || mode == "message") {
    check_mismatch(*group, mode);
  } else if (!mode.empty()) {
    group = nullptr;
    check_missing_rank(new_group("nccl"), mode);
  } else {
    check_collectives(*group, kHostMemory);
    check_collectives(*group, kDeviceMemory);
  }
  const int status = report_checks(here.rank, here.size);
  if (mode.empty() || mode == "fork") return status;
  // After a failure, the end of the process would wait for the other processes.
  _exit(status);
}
