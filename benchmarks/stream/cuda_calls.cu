// cuda_calls_bench: what single calls of CUDA cost on the host, one thread alone and beside a thread that
// polls an event, and what the device needs per kernel. The parts of which stream_bench's launch_* consist.
// Prints JSON lines with bench "cuda_calls"; without a GPU it says so.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/support/clock.h"
#include "benchmarks/support/report.h"

namespace {

using namespace mx::bench;

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "cuda_calls_bench: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

__global__ void empty_kernel() {}

constexpr int kBatch = 400;  // fewer than the launches that a stream takes without waiting

struct Room {
  cudaStream_t stream = nullptr, other = nullptr;
  std::vector<cudaEvent_t> events = std::vector<cudaEvent_t>(kBatch);
  cudaEvent_t done = nullptr;
  uint32_t* word = nullptr;
  PFN_cuStreamWriteValue32_v11070 write_value = nullptr;

  Room() {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (cudaEvent_t& event : events) check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    check(cudaEventRecord(done, other));
    check(cudaHostAlloc(reinterpret_cast<void**>(&word), 64, cudaHostAllocMapped | cudaHostAllocPortable));
    void* pointer = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(
        cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &pointer, 11070, cudaEnableDefault, &found));
    write_value = reinterpret_cast<PFN_cuStreamWriteValue32_v11070>(pointer);
    empty_kernel<<<1, 1, 0, stream>>>();
    check(cudaDeviceSynchronize());
  }
};

}  // namespace

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::fprintf(stderr, "cuda_calls_bench: no GPU here\n");
    return 0;
  }
  Room room;
  const std::pair<const char*, std::function<void(int)>> calls[] = {
      {"launch", [&](int) { empty_kernel<<<1, 1, 0, room.stream>>>(); }},
      {"launch_record",
       [&](int i) {
         empty_kernel<<<1, 1, 0, room.stream>>>();
         cudaEventRecord(room.events[i], room.stream);
       }},
      {"launch_write_value",
       [&](int i) {
         empty_kernel<<<1, 1, 0, room.stream>>>();
         room.write_value(room.stream, reinterpret_cast<CUdeviceptr>(room.word), static_cast<uint32_t>(i), 0);
       }},
      {"record", [&](int i) { cudaEventRecord(room.events[i], room.stream); }},
      {"wait_event", [&](int) { cudaStreamWaitEvent(room.stream, room.done, 0); }},
      {"query_reached", [&](int) { cudaEventQuery(room.done); }},
      {"query_recorded", [&](int i) { cudaEventQuery(room.events[i]); }},
      {"get_device",
       [&](int) {
         int device = 0;
         cudaGetDevice(&device);
       }},
      {"get_last_error", [&](int) { (void)cudaGetLastError(); }},
      {"is_capturing",
       [&](int) {
         cudaStreamCaptureStatus status{};
         cudaStreamIsCapturing(room.stream, &status);
       }},
  };
  std::map<std::string, std::vector<double>> host, device;
  for (const bool polled : {false, true}) {
    std::atomic<bool> stop{false};
    std::thread poller;
    if (polled)
      poller = std::thread([&] {
        while (!stop.load(std::memory_order_relaxed)) cudaEventQuery(room.done);
      });
    for (int round = 0; round < 9; ++round) {
      for (const auto& [name, call] : calls) {
        const int64_t begin = now_ns();
        for (int i = 0; i < kBatch; ++i) call(i);
        const int64_t called = now_ns();
        check(cudaStreamSynchronize(room.stream));
        const int64_t ended = now_ns();
        const std::string key = std::string(name) + (polled ? "_polled" : "");
        host[key].push_back(static_cast<double>(called - begin) / kBatch);
        device[key].push_back(static_cast<double>(ended - begin) / kBatch);
      }
    }
    stop = true;
    if (poller.joinable()) poller.join();
  }
  for (const auto& [name, samples] : host)
    print({"cuda_calls", name + "_host", "cuda", 1, "ns/op", summarize(samples)});
  for (const char* name : {"launch", "launch_record", "launch_write_value"})
    print({"cuda_calls", std::string(name) + "_total", "cuda", 1, "ns/op", summarize(device[name])});
  return 0;
}
