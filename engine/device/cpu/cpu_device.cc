#include "engine/device/cpu/cpu_device.h"

#include <cstring>
#include <fstream>
#include <string>

#include "engine/base/check.h"
#include "engine/base/cpus.h"
#include "engine/device/host_memory.h"
#include "engine/device/host_stream.h"
#include "engine/device/pool.h"
#include "engine/device/registry.h"

namespace mx {

namespace {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "host processor";  // ARM's cpuinfo has no name
}

// The host's memory belongs to other programs too, and those of a cgroup are killed for what this one only
// keeps: at most a quarter stays cached. Smaller would make big arrays that come and go touch new pages each
// time, which costs more than filling them.
constexpr size_t kCachedFraction = 4;

class CpuDevice final : public Device, private HostStreamOwner {
 public:
  CpuDevice()
      : properties_{.name = processor_name(),
                    .total_bytes = memory_.limit_bytes(),
                    .compute_units = usable_cpus(),
                    .host_accessible = true,
                    .compute_streams = 1},
        pool_(cpu(), memory_,
              {.host_accessible = true,
               .watermark = watermark_from_environment(memory_.limit_bytes() / kCachedFraction)}) {}

  Context context() const override { return cpu(); }
  const DeviceProperties& properties() const override { return properties_; }

  void* allocate(size_t bytes, Stream* stream) override {
    return pool_.allocate(bytes, HostStream::current() == stream ? nullptr : stream);
  }
  void free(void* pointer, Stream* stream) noexcept override { pool_.free(pointer, stream); }
  void note_use(void* pointer, Stream& stream) override { pool_.note_use(pointer, stream); }

  void copy_async(void* target, Context target_context, const void* source, Context source_context,
                  size_t bytes, Stream& stream) override {
    for (const Context other : {target_context, source_context, stream.device().context()}) {
      if (other.is_cpu()) continue;
      get_device(other).copy_async(target, target_context, source, source_context, bytes, stream);
      return;
    }
    if (bytes == 0) return;
    auto* host_stream = dynamic_cast<HostStream*>(&stream);
    MX_CHECK(host_stream != nullptr, InvalidArgument,
             "[copy_async] expected a stream of cpu(0), got a stream of another kind of device");
    host_stream->append(
        {.kind = HostWork::Kind::copy, .bytes = bytes, .injected = {}, .task = [=](KernelContext&) {
           std::memcpy(target, source, bytes);
         }});
  }

  std::unique_ptr<Stream> new_stream(StreamKind kind) override {
    HostStreamOwner& owner = *this;
    return std::make_unique<HostStream>(*this, owner, kind);
  }
  std::unique_ptr<Event> new_event() override { return std::make_unique<PointEvent>(); }
  std::exception_ptr lost() const noexcept override { return nullptr; }
  MemoryStats memory_stats() const override { return pool_.stats(); }
  void reset_peak_memory() override { pool_.reset_peak(); }
  size_t trim_memory() override { return pool_.trim(); }
  void set_memory_watermark(size_t bytes) override { pool_.set_watermark(bytes); }

 private:
  HostMemory memory_;
  const DeviceProperties properties_;
  Pool pool_;
};

}  // namespace

int cpu_device_count() { return 1; }

std::unique_ptr<Device> open_cpu_device(int) { return std::make_unique<CpuDevice>(); }

}  // namespace mx
