// A backend outside the tree that uses only public headers: the host under another name. One call adds it to
// the registry and one line to the conformance suite.
#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"
#include "engine/device/host_stream.h"
#include "engine/device/pool.h"
#include "engine/device/registry.h"
#include "tests/conformance/device_suite.h"

namespace outside {

using namespace mx;

class Heap final : public MemorySource {
 public:
  void* reserve(size_t bytes) override {
    return bytes <= limit_bytes() ? std::aligned_alloc(4096, bytes) : nullptr;
  }
  void release(void* segment, size_t) noexcept override { std::free(segment); }
  size_t limit_bytes() const noexcept override { return size_t{1} << 30; }
};

class Abacus final : public Device, public HostStreamOwner {
 public:
  explicit Abacus(Context context)
      : context_(context),
        properties_{.name = "abacus",
                    .total_bytes = heap_.limit_bytes(),
                    .compute_units = 10,
                    .host_accessible = true,
                    .compute_streams = 2},
        pool_(context, heap_, {.host_accessible = true}) {}

  Context context() const override { return context_; }
  const DeviceProperties& properties() const override { return properties_; }
  void* allocate(size_t bytes, Stream* stream) override {
    return pool_.allocate(bytes, HostStream::current() == stream ? nullptr : stream);
  }
  void free(void* pointer, Stream* stream) noexcept override { pool_.free(pointer, stream); }
  void note_use(void* pointer, Stream& stream) override { pool_.note_use(pointer, stream); }
  void copy_async(void* target, Context, const void* source, Context, size_t bytes, Stream& stream) override {
    if (bytes > 0) stream.submit([=](KernelContext&) { std::memcpy(target, source, bytes); });
  }
  std::unique_ptr<Stream> new_stream(StreamKind kind) override {
    return std::make_unique<HostStream>(*this, *this, kind);
  }
  std::unique_ptr<Event> new_event() override { return std::make_unique<PointEvent>(); }
  std::exception_ptr lost() const noexcept override { return nullptr; }
  MemoryStats memory_stats() const override { return pool_.stats(); }
  void reset_peak_memory() override { pool_.reset_peak(); }
  size_t trim_memory() override { return pool_.trim(); }
  void set_memory_watermark(size_t bytes) override { pool_.set_watermark(bytes); }

 private:
  const Context context_;
  Heap heap_;
  const DeviceProperties properties_;
  Pool pool_;
};

DeviceKind abacus() {
  static const DeviceKind kind = register_backend({
      .name = "abacus",
      .count = [] { return 2; },
      .open = [](int id) -> std::unique_ptr<Device> {
        return std::make_unique<Abacus>(Context{abacus(), static_cast<uint16_t>(id)});
      },
  });
  return kind;
}

TEST(OutsideBackend, IsNamedAndCounted) {
  const Context second{abacus(), 1};
  EXPECT_EQ(to_string(second), "abacus(1)");
  EXPECT_EQ(num_devices(abacus()), 2);
  EXPECT_EQ(&get_device(second), &get_device(second));
  EXPECT_EQ(get_device(second).context(), second);
  EXPECT_THROW(get_device({abacus(), 2}), InvalidArgument);
}

TEST(OutsideBackend, RegistersItsNameOnce) {
  abacus();
  EXPECT_THROW(register_backend({"abacus", [] { return 1; }, [](int) { return nullptr; }}), InvalidArgument);
  EXPECT_THROW(register_backend({"cpu", [] { return 1; }, [](int) { return nullptr; }}), InvalidArgument);
  EXPECT_THROW(register_backend({"empty", nullptr, nullptr}), InvalidArgument);
}

MX_DEVICE_CONFORMANCE(abacus, mx::Context{abacus(), 0}, mx::Context{abacus(), 1});

}  // namespace outside
