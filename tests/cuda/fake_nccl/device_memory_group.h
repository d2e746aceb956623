// Groups whose calls have buffers in memory of a GPU, for suites that pass buffers of the host.
//
// Each buffer of a call is copied to the device on a stream of the group, which no thread waits for; the call
// comes with Request::work_ahead. Where the buffers of a call overlap, their copies overlap in the same way.
// After a call that has succeeded, the output is copied back.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "engine/base/error.h"
#include "tests/comm/forwarding_communicator.h"

namespace mx::comm {

class DeviceMemoryCommunicator final : public ForwardingCommunicator {
 public:
  explicit DeviceMemoryCommunicator(std::shared_ptr<Communicator> below)
      : ForwardingCommunicator(std::move(below)), memory_(std::make_shared<Memory>(device().id)) {}

  void start(Request request) override {
    check_request(request, rank(), size());
    const size_t in = bytes_in(request), out = bytes_out(request);
    if (!request.done || in + out == 0) return ForwardingCommunicator::start(std::move(request));
    const auto moved = std::make_shared<Moved>(memory_, request.in, in, request.out, out);
    if (in > 0) request.in = moved->on_device(request.in);
    if (out > 0) request.out = moved->on_device(request.out);
    request.work_ahead = [moved]() -> void* { return moved->memory->stream; };
    request.done = [moved, done = std::move(request.done)](std::exception_ptr error) {
      if (!error) moved->copy_back();
      done(std::move(error));
    };
    ForwardingCommunicator::start(std::move(request));
  }

 private:
  static void must(cudaError_t code) {
    if (code != cudaSuccess) throw DeviceError(cudaGetErrorString(code));
  }

  /// The stream of a rank. Never destroyed, so that a forked child touches nothing.
  struct Memory {
    int device;
    cudaStream_t stream = nullptr;
    explicit Memory(int d) : device(d) {
      must(cudaSetDevice(device));
      must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
  };

  /// The memory of the device for one call.
  struct Moved {
    struct Piece {
      const char* begin;
      size_t bytes;
      void* copy;
    };
    const std::shared_ptr<Memory> memory;
    std::vector<Piece> pieces;
    void* const result;
    const size_t result_bytes;

    Moved(std::shared_ptr<Memory> m, const void* in, size_t in_bytes, void* out, size_t out_bytes)
        : memory(std::move(m)), result(out), result_bytes(out_bytes) {
      const char* const a = static_cast<const char*>(in);
      const char* const b = static_cast<const char*>(out);
      const bool overlap = in_bytes > 0 && out_bytes > 0 && a < b + out_bytes && b < a + in_bytes;
      if (overlap) {
        const char* const begin = std::min(a, b);
        add(begin, static_cast<size_t>(std::max(a + in_bytes, b + out_bytes) - begin));
      } else {
        add(a, in_bytes);
        add(b, out_bytes);
      }
    }
    ~Moved() {
      (void)cudaSetDevice(memory->device);
      for (const Piece& piece : pieces) (void)cudaFreeAsync(piece.copy, memory->stream);
    }
    void add(const char* begin, size_t bytes) {
      if (bytes == 0) return;
      must(cudaSetDevice(memory->device));
      Piece piece{begin, bytes, nullptr};
      must(cudaMallocAsync(&piece.copy, bytes, memory->stream));
      pieces.push_back(piece);
      must(cudaMemcpyAsync(piece.copy, begin, bytes, cudaMemcpyHostToDevice, memory->stream));
    }
    void* on_device(const void* host) const {
      const char* const address = static_cast<const char*>(host);
      for (const Piece& piece : pieces)
        if (address >= piece.begin && address < piece.begin + piece.bytes)
          return static_cast<char*>(piece.copy) + (address - piece.begin);
      return nullptr;
    }
    void copy_back() const {
      if (result_bytes == 0) return;
      must(cudaSetDevice(memory->device));
      must(cudaMemcpyAsync(result, on_device(result), result_bytes, cudaMemcpyDeviceToHost, memory->stream));
      must(cudaStreamSynchronize(memory->stream));
    }
  };

  size_t bytes_in(const Request& r) const {
    const size_t bytes = r.count * size_of(r.type);
    switch (r.collective) {
      case Collective::allreduce:
      case Collective::reduce_scatter:
      case Collective::send:
        return bytes;
      case Collective::allgather:
        return slice_of(r.count, size(), rank()).count * size_of(r.type);
      case Collective::broadcast:
        return r.peer == rank() ? bytes : 0;
      case Collective::all_to_all:
        return bytes * static_cast<size_t>(size());
      case Collective::barrier:
      case Collective::receive:
        return 0;
    }
    return 0;
  }
  size_t bytes_out(const Request& r) const {
    const size_t bytes = r.count * size_of(r.type);
    switch (r.collective) {
      case Collective::allreduce:
      case Collective::allgather:
      case Collective::broadcast:
      case Collective::receive:
        return bytes;
      case Collective::reduce_scatter:
        return slice_of(r.count, size(), rank()).count * size_of(r.type);
      case Collective::all_to_all:
        return bytes * static_cast<size_t>(size());
      case Collective::barrier:
      case Collective::send:
        return 0;
    }
    return 0;
  }

  const std::shared_ptr<Memory> memory_;
};

inline std::vector<std::shared_ptr<Communicator>> with_device_memory(
    std::vector<std::shared_ptr<Communicator>> group) {
  for (auto& member : group) member = std::make_shared<DeviceMemoryCommunicator>(std::move(member));
  return group;
}

}  // namespace mx::comm
