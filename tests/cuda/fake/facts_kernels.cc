// The kernels of the facts on the stand-in for CUDA; tests/cuda/facts/kernels.cu on GPUs.
#include <atomic>

#include "tests/cuda/facts/kernels.h"
#include "tests/cuda/fake/fake_cuda.h"

namespace mx::facts {

namespace {

// Addresses that stand for kernels.
const char write = 0, first_in_capture = 0, first_while_busy = 0, loaded_while_busy = 0, known_while_busy = 0;

void launch_one(const void* function, cudaStream_t stream, fake_cuda::Step step) {
  fake_cuda::launch(function, 1, 1, 0, stream, std::move(step));
}

void launch_store(const void* function, uint32_t* target, uint32_t value, cudaStream_t stream) {
  launch_one(function, stream, [=] {
    fake_cuda::check_access(target, sizeof *target, sizeof *target);
    std::atomic_ref(*target).store(value);
    return true;
  });
}

void launch_fault(cudaError_t code, cudaStream_t stream) {
  launch_one(nullptr, stream, [code]() -> bool { throw fake_cuda::Fault{code}; });
}

}  // namespace

void launch_gate(const uint32_t* opened, cudaStream_t stream) {
  launch_one(nullptr, stream,
             [opened] { return std::atomic_ref(*const_cast<uint32_t*>(opened)).load() != 0; });
}

void launch_write(uint32_t* target, uint32_t value, cudaStream_t stream) {
  launch_store(&write, target, value, stream);
}

// Stays inside for as long as the scheduler needs to start everything else that can run.
void launch_crowd(uint32_t* inside, uint32_t* most, cudaStream_t stream) {
  launch_one(nullptr, stream, [=, rounds = 0]() mutable {
    if (rounds++ == 0) {
      const uint32_t now = std::atomic_ref(*inside).fetch_add(1) + 1;
      if (std::atomic_ref(*most).load() < now) std::atomic_ref(*most).store(now);
    }
    if (rounds < 20) return false;
    std::atomic_ref(*inside).fetch_sub(1);
    return true;
  });
}

void launch_first_in_capture(uint32_t* target, cudaStream_t stream) {
  launch_store(&first_in_capture, target, 1, stream);
}
void launch_first_while_busy(uint32_t* target, cudaStream_t stream) {
  launch_store(&first_while_busy, target, 1, stream);
}
void launch_loaded_while_busy(uint32_t* target, cudaStream_t stream) {
  launch_store(&loaded_while_busy, target, 1, stream);
}
void launch_known_while_busy(uint32_t* target, cudaStream_t stream) {
  launch_store(&known_while_busy, target, 1, stream);
}
void launch_write_to_null(cudaStream_t stream) { launch_store(nullptr, nullptr, 1, stream); }
void launch_trap(cudaStream_t stream) { launch_fault(cudaErrorLaunchFailure, stream); }
void launch_failed_assertion(cudaStream_t stream) { launch_fault(cudaErrorAssert, stream); }
void launch_misaligned_write(uint32_t* target, cudaStream_t stream) {
  launch_store(nullptr, reinterpret_cast<uint32_t*>(reinterpret_cast<char*>(target) + 1), 1, stream);
}
void launch_too_large(cudaStream_t stream) {
  fake_cuda::launch(&write, 1, 4096, 0, stream, [] { return true; });
}
const void* loaded_while_busy_function() { return &loaded_while_busy; }
const void* write_function() { return &write; }

}  // namespace mx::facts
