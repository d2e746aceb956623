#include "tests/support/stream_ops.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "engine/device/registry.h"

namespace mx::test {

DeviceArray::DeviceArray(Context context, size_t size)
    : context_(context),
      size_(size),
      data_(static_cast<double*>(get_device(context).allocate(size * sizeof(double)))) {}

DeviceArray::~DeviceArray() { get_device(context_).free(data_); }

void StreamOps::copy(Stream& stream, double* target, Context target_context, const double* source,
                     Context source_context, size_t size) {
  stream.device().copy_async(target, target_context, source, source_context, size * sizeof(double), stream);
}

namespace {

class HostMeeting final : public Meeting {
 public:
  explicit HostMeeting(int expected) : shared_(std::make_shared<Shared>()) { shared_->expected = expected; }

  void attend(Stream& stream) override {
    stream.submit([shared = shared_](KernelContext&) {
      std::unique_lock lock(shared->mutex);
      ++shared->arrived;
      shared->changed.notify_all();
      if (!shared->changed.wait_for(lock, std::chrono::seconds(30),
                                    [&] { return shared->arrived >= shared->expected; })) {
        shared->all_met = false;
      }
    });
  }

  void host_attends() override {
    std::lock_guard lock(shared_->mutex);
    ++shared_->arrived;
    shared_->changed.notify_all();
  }

  int arrived() const override {
    std::lock_guard lock(shared_->mutex);
    return shared_->arrived;
  }

  bool all_met() const override {
    std::lock_guard lock(shared_->mutex);
    return shared_->all_met;
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    int expected = 0;
    int arrived = 0;
    bool all_met = true;
  };
  std::shared_ptr<Shared> shared_;
};

class HostStreamOps final : public StreamOps {
 public:
  void fill(Stream& stream, double* out, size_t size, double value) override {
    stream.submit([=](KernelContext& context) {
      double* to = context.ptr(out);
      for (size_t i = 0; i < size; ++i) to[i] = value;
    });
  }

  void add(Stream& stream, const double* a, const double* b, double* out, size_t size) override {
    stream.submit([=](KernelContext& context) {
      const double* x = context.ptr(a);
      const double* y = context.ptr(b);
      double* to = context.ptr(out);
      for (size_t i = 0; i < size; ++i) to[i] = x[i] + y[i];
    });
  }

  void matmul(Stream& stream, const double* a, const double* b, double* out, size_t n) override {
    stream.submit([=](KernelContext& context) {
      const double* x = context.ptr(a);
      const double* y = context.ptr(b);
      double* to = context.ptr(out);
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < n; ++j) {
          double sum = 0;
          for (size_t k = 0; k < n; ++k) sum += x[i * n + k] * y[k * n + j];
          to[i * n + j] = sum;
        }
      }
    });
  }

  std::unique_ptr<Meeting> new_meeting(int expected) override {
    return std::make_unique<HostMeeting>(expected);
  }
};

}  // namespace

bool runs_host_code(Context context) { return context.kind != DeviceKind::gpu; }

StreamOps& stream_ops(Context context) {
  static HostStreamOps host;
  if (runs_host_code(context)) return host;
  return cuda_stream_ops();
}

}  // namespace mx::test
