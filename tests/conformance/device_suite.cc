#include "tests/conformance/device_suite.h"

#include <atomic>
#include <future>

#include "engine/base/error.h"

namespace mx::conformance {

namespace {

class HostGate final : public Gate {
 public:
  explicit HostGate(Stream& stream) {
    stream.submit([opened = opened_.get_future().share()](KernelContext&) { opened.wait(); });
  }
  ~HostGate() override { open(); }
  void open() override {
    if (!std::exchange(is_open_, true)) opened_.set_value();
  }

 private:
  std::promise<void> opened_;
  bool is_open_ = false;
};

}  // namespace

void DeviceOps::fill(Stream& stream, uint32_t* p, size_t n, uint32_t value) {
  stream.submit([=](KernelContext& context) {
    uint32_t* q = context.ptr(p);
    for (size_t i = 0; i < n; ++i) q[i] = value;
  });
}

void DeviceOps::add(Stream& stream, uint32_t* p, size_t n, uint32_t delta) {
  stream.submit([=](KernelContext& context) {
    uint32_t* q = context.ptr(p);
    for (size_t i = 0; i < n; ++i) q[i] += delta;
  });
}

void DeviceOps::check(Stream& stream, const uint32_t* p, size_t n, uint32_t expected, uint32_t* mismatches) {
  stream.submit([=](KernelContext& context) {
    const uint32_t* q = context.ptr(p);
    uint32_t wrong = 0;
    for (size_t i = 0; i < n; ++i) wrong += q[i] != expected;
    std::atomic_ref(*context.ptr(mismatches)).fetch_add(wrong);
  });
}

std::unique_ptr<Gate> DeviceOps::hold(Stream& stream) { return std::make_unique<HostGate>(stream); }

DeviceOps& host_ops() {
  static DeviceOps ops;
  return ops;
}

void DeviceSuite::SetUp() {
  const Context first = GetParam().first;
  if (first.id >= num_devices(first.kind)) GTEST_SKIP() << "this machine has no " << first;
  ops().prepare(device());
}

Context DeviceSuite::peer() const {
  const Context second = GetParam().second;
  return second.id < num_devices(second.kind) ? second : GetParam().first;
}

void DeviceSuite::upload(Device& to, void* target, const void* source, size_t bytes) {
  auto s = to.new_stream(StreamKind::copy_in);
  to.copy_async(target, to.context(), source, cpu(), bytes, *s);
  s->synchronize();
}

void DeviceSuite::download(Device& from, void* target, const void* source, size_t bytes) {
  auto s = from.new_stream(StreamKind::copy_out);
  from.copy_async(target, cpu(), source, from.context(), bytes, *s);
  s->synchronize();
}

uint32_t DeviceSuite::read(const uint32_t* p) {
  uint32_t value = 0;
  download(device(), &value, p, sizeof value);
  return value;
}

std::string text_of(std::exception_ptr error) {
  if (error == nullptr) return "";
  try {
    std::rethrow_exception(error);
  } catch (...) {
    return current_exception_text();
  }
}

}  // namespace mx::conformance
