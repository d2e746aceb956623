#include "engine/device/virtual/virtual_device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/cpus.h"
#include "engine/device/host_graph.h"
#include "engine/device/registry.h"

namespace mx {

namespace {

// Scrambles a counter into 64 even bits (the finaliser of SplitMix64, Steele et al., 2014).
uint64_t scramble(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

VirtualDevice& virtual_device(int id) { return static_cast<VirtualDevice&>(get_device(virt(id))); }

// Segments are small because fresh ones are poisoned, which touches every page.
VirtualDevice::VirtualDevice(int id, const VirtualOptions& options)
    : id_(id),
      properties_{.name = "virtual accelerator " + std::to_string(id),
                  .total_bytes = options.capacity_bytes,
                  .compute_units = usable_cpus(),
                  .host_accessible = false,
                  .compute_streams = 4},
      copy_bytes_per_second_(options.copy_bytes_per_second),
      memory_(options.capacity_bytes),
      pool_(virt(id), memory_,
            {.alignment = 256,
             .small_limit = 64 << 10,
             .small_segment = 512 << 10,
             .large_segment = 4 << 20,
             .watermark = watermark_from_environment(SIZE_MAX)}),
      seed_(options.seed),
      min_delay_us_(options.min_delay_us),
      max_delay_us_(options.max_delay_us) {}

void* VirtualDevice::allocate(size_t bytes, Stream* stream) {
  if (std::exception_ptr error = lost()) std::rethrow_exception(error);
  if (bytes == 0) return nullptr;
  bool fail = false;
  {
    std::lock_guard lock(mutex_);
    fail = count_down(fail_allocation_);
  }
  MX_CHECK(!fail, OutOfMemory, "[", context(), "] expected free memory for ", bytes,
           " bytes, got an injected allocation failure");
  return pool_.allocate(bytes, HostStream::current() == stream ? nullptr : stream);
}

void VirtualDevice::copy_async(void* target, Context target_context, const void* source,
                               Context source_context, size_t bytes, Stream& stream) {
  if (bytes == 0) return;
  char* to = reach(target, target_context, bytes);
  const char* from = reach(source, source_context, bytes);
  HostWork work{.kind = HostWork::Kind::copy, .bytes = bytes, .injected = {}, .task = [=](KernelContext&) {
                  for (const Context side : {target_context, source_context}) {
                    if (side.is_cpu()) continue;
                    if (std::exception_ptr error = get_device(side).lost()) std::rethrow_exception(error);
                  }
                  std::memcpy(to, from, bytes);
                }};
  if (auto* host_stream = dynamic_cast<HostStream*>(&stream)) {
    host_stream->append(std::move(work));
    return;
  }
  auto* capture = dynamic_cast<HostCapture*>(&stream);
  MX_CHECK(capture != nullptr, InvalidArgument, "[copy_async] expected a stream of a virtual device or of ",
           "cpu(0), got one of ", stream.device().context());
  capture->append(std::move(work));
}

// The address under which this process reaches memory of `context`.
char* VirtualDevice::reach(const void* address, Context context, size_t bytes) const {
  char* pointer = static_cast<char*>(const_cast<void*>(address));
  if (context.is_cpu()) return pointer;
  MX_CHECK(context.kind == DeviceKind::virt, InvalidArgument,
           "[copy_async] expected a virtual device or cpu(0), got ", context);
  const VirtualMemory& memory = context.id == id_ ? memory_ : virtual_device(context.id).memory_;
  MX_CHECK(memory.contains(address, bytes), InvalidArgument, "[copy_async] expected ", bytes,
           " bytes in the memory of ", context, ", got the address ", address);
  return pointer + memory.alias_offset();
}

std::unique_ptr<Stream> VirtualDevice::new_stream(StreamKind kind) {
  HostStreamOwner& owner = *this;
  auto stream = std::make_unique<HostStream>(*this, owner, kind);
  std::scoped_lock lock(streams_mutex_, mutex_);
  auto slot = std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.stream == nullptr; });
  if (slot == slots_.end()) slot = slots_.insert(slots_.end(), Slot{});
  *slot = {stream.get(), 0};
  return stream;
}

void VirtualDevice::closed(HostStream& stream) noexcept {
  std::scoped_lock lock(streams_mutex_, mutex_);
  for (Slot& slot : slots_) {
    if (slot.stream == &stream) slot.stream = nullptr;
  }
}

std::unique_ptr<Event> VirtualDevice::new_event() { return std::make_unique<PointEvent>(); }

std::unique_ptr<GraphBuilder> VirtualDevice::new_graph_builder() {
  if (std::exception_ptr error = lost()) std::rethrow_exception(error);
  return std::make_unique<HostGraphBuilder>(*this, [this] { return draw_order(); });
}

uint64_t VirtualDevice::draw_order() {
  std::lock_guard lock(mutex_);
  return scramble(scramble(seed_ + static_cast<uint64_t>(id_)) + ++graph_launches_);
}

std::exception_ptr VirtualDevice::lost() const noexcept {
  if (!is_lost_.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard lock(mutex_);
  return lost_error_;
}

void VirtualDevice::lose() {
  {
    std::lock_guard lock(mutex_);
    lost_error_ = std::make_exception_ptr(
        DeviceError(detail::concat("[", context(), "] expected a working device, got one that is lost")));
    is_lost_.store(true, std::memory_order_release);
  }
  // A stream of this device may be waiting for another device.
  std::lock_guard lock(streams_mutex_);
  for (const Slot& slot : slots_) {
    if (slot.stream != nullptr) slot.stream->poke();
  }
}

void VirtualDevice::restore() {
  std::lock_guard lock(mutex_);
  is_lost_.store(false, std::memory_order_release);
  lost_error_ = nullptr;
}

bool VirtualDevice::count_down(uint64_t& left) { return left > 0 && --left == 0; }

void VirtualDevice::fail_next_allocation(uint64_t n) {
  std::lock_guard lock(mutex_);
  fail_allocation_ = n;
}

void VirtualDevice::fail_next_copy(uint64_t n) {
  std::lock_guard lock(mutex_);
  fail_copy_ = n;
}

void VirtualDevice::fail_next_kernel(uint64_t n) {
  std::lock_guard lock(mutex_);
  fail_kernel_ = n;
}

void VirtualDevice::admit(HostStream&, HostWork& work) {
  const bool copy = work.kind == HostWork::Kind::copy;
  std::lock_guard lock(mutex_);
  if (!count_down(copy ? fail_copy_ : fail_kernel_)) return;
  work.injected = std::make_exception_ptr(DeviceError(detail::concat(
      "[", context(), "] expected the ", copy ? "copy" : "kernel", " to succeed, got an injected failure")));
}

void VirtualDevice::run(HostStream& stream, HostWork& work, KernelContext& context) {
  const uint32_t delay_us = next_delay_us(stream);
  if (delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
  if (std::exception_ptr error = delay_us > 0 ? lost() : nullptr) std::rethrow_exception(error);
  if (work.injected != nullptr) std::rethrow_exception(work.injected);
  const int64_t begin_ns = now_ns();
  if (work.kind == HostWork::Kind::copy && copy_bytes_per_second_ < std::numeric_limits<double>::infinity()) {
    std::this_thread::sleep_for(
        std::chrono::duration<double>(static_cast<double>(work.bytes) / copy_bytes_per_second_));
  }
  work.task(context);
  if (!tracing_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(mutex_);
  trace_.push_back({this->context(), stream.id(), work.kind, work.bytes, delay_us, begin_ns, now_ns()});
}

uint32_t VirtualDevice::next_delay_us(const HostStream& stream) {
  std::lock_guard lock(mutex_);
  if (max_delay_us_ == 0) return 0;
  for (size_t place = 0; place < slots_.size(); ++place) {
    if (slots_[place].stream != &stream) continue;
    const uint64_t draw =
        scramble(scramble(scramble(seed_) + place * 64 + static_cast<uint64_t>(id_)) + slots_[place].work++);
    return min_delay_us_ + static_cast<uint32_t>(draw % (uint64_t{max_delay_us_} - min_delay_us_ + 1));
  }
  return 0;
}

void VirtualDevice::set_delay(uint64_t seed, uint32_t min_us, uint32_t max_us) {
  MX_CHECK(min_us <= max_us, InvalidArgument, "[set_delay] expected min_us <= max_us, got ", min_us, " and ",
           max_us);
  std::lock_guard lock(mutex_);
  seed_ = seed;
  min_delay_us_ = min_us;
  max_delay_us_ = max_us;
  graph_launches_ = 0;
  for (Slot& slot : slots_) slot.work = 0;
}

void VirtualDevice::start_trace() {
  std::lock_guard lock(mutex_);
  trace_.clear();
  tracing_.store(true, std::memory_order_relaxed);
}

std::vector<VirtualTraceEntry> VirtualDevice::stop_trace() {
  std::lock_guard lock(mutex_);
  tracing_.store(false, std::memory_order_relaxed);
  return std::exchange(trace_, {});
}

}  // namespace mx
