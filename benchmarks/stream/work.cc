#include "benchmarks/stream/work.h"

#include <chrono>
#include <thread>
#include <vector>

#include "benchmarks/support/clock.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::bench {

namespace {

// The stream's thread sleeps, so that any number of streams can run at once on few processors.
class SleepingWork final : public Work {
 public:
  explicit SleepingWork(size_t count) : spans_(count) {}
  void enqueue(Stream& stream, size_t index, int64_t duration_ns) override {
    stream.submit([this, index, duration_ns](KernelContext&) {
      Span& span = spans_[index];
      span.begin_ns = now_ns();
      std::this_thread::sleep_for(std::chrono::nanoseconds(duration_ns));
      span.end_ns = now_ns();
    });
  }
  void enqueue_empty(Stream& stream) override {
    stream.submit([](KernelContext&) {});
  }
  Span span(size_t index) const override { return spans_[index]; }

 private:
  std::vector<Span> spans_;
};

}  // namespace

std::unique_ptr<Work> make_work(Context device, size_t count) {
  if (device.kind == DeviceKind::virt) return std::make_unique<SleepingWork>(count);
  std::unique_ptr<Work> work = device.kind == DeviceKind::gpu ? make_cuda_work(count) : nullptr;
  MX_CHECK(work != nullptr, InvalidArgument, "[stream_bench] expected a virtual device or a GPU, got ",
           device);
  return work;
}

}  // namespace mx::bench
