#include "ndarray/storage.h"

#include <sched.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/cpus.h"
#include "engine/base/log.h"
#include "engine/device/registry.h"
#include "ndarray/detail/block_cache.h"

namespace mx {
namespace {

thread_local constinit EngineScope* innermost = nullptr;

Device* device_of(Context context) {
  static Device* const first_cpu = &get_device(cpu());
  return context == cpu() ? first_cpu : &get_device(context);
}

}  // namespace

Engine& current_engine() { return innermost != nullptr ? innermost->engine_ : Engine::get(); }

EngineScope::EngineScope(Engine& engine) : engine_(engine), before_(std::exchange(innermost, this)) {}
EngineScope::~EngineScope() {
  kept_.reset();
  innermost = before_;
}
std::shared_ptr<void>* EngineScope::kept() { return innermost != nullptr ? &innermost->kept_ : nullptr; }

detail::Ref<Storage> Storage::make(size_t bytes, Context context) {
  static_assert(sizeof(Storage) <= detail::kBlockBytes[static_cast<int>(detail::BlockKind::storage)]);
  Device* const device = device_of(context);
  auto* storage = new (detail::new_block(detail::BlockKind::storage)) Storage(bytes, context, device);
  return detail::Ref<Storage>::adopt(storage);
}

detail::Ref<Storage> Storage::wrap(void* data, size_t bytes, std::function<void()> release) {
  auto owned = std::make_unique<std::function<void()>>(std::move(release));
  auto* storage = new (detail::new_block(detail::BlockKind::storage)) Storage(bytes, cpu(), nullptr);
  storage->data_.store(data, std::memory_order_relaxed);
  storage->release_ = owned.release();
  return detail::Ref<Storage>::adopt(storage);
}

void Storage::wait_for_end_of_direct_uses() const {
  spin_until([&] { return (state_.load(std::memory_order_acquire) & (kReaders | kWriter)) == 0; });
}

Var Storage::var(Engine& engine) {
  for (;;) {
    uint32_t state = var_ready_.load(std::memory_order_acquire);
    if (state == kReady) {
      MX_CHECK(engine_ == &engine, InvalidState,
               "[NDArray] expected an array that only this thread's engine uses, got one that belongs to "
               "another engine");
      return var_;
    }
    if (state == kNone && var_ready_.compare_exchange_weak(state, kMaking, std::memory_order_acquire)) {
      try {
        var_ = engine.new_var("array");
      } catch (...) {
        var_ready_.store(kNone, std::memory_order_release);
        throw;
      }
      engine_ = &engine;
      var_ready_.store(kReady, std::memory_order_release);
      return var_;
    }
    cpu_relax();
  }
}

void Storage::set_maker(const detail::Ref<detail::ReplayCount>& segment) {
  detail::Ref<detail::ReplayCount> mine = segment;
  detail::ReplayCount* none = nullptr;
  if (maker_.compare_exchange_strong(none, mine.get(), std::memory_order_acq_rel)) mine.leave();
}

Var Storage::shared_var(Engine& engine) {
  const Var result = var(engine);
  expect_unseen_writers();
  if (on_cpu()) wait_for_direct_uses(state_.fetch_or(kShared, std::memory_order_acquire));
  return result;
}

void Storage::wait() {
  if ((on_cpu() && quiet()) || !has_var()) return;
  current_engine().wait(var_);
}

bool Storage::wait(int64_t timeout_ms) {
  if ((on_cpu() && quiet()) || !has_var()) return true;
  return current_engine().wait(var_, timeout_ms);
}

std::optional<std::string> Storage::undeclared_in_operation(bool write) const {
  // Memory without a variable was never used through the engine: the operation has made it itself, or it
  // never changes.
  return has_var() ? Engine::undeclared_in(var_, write) : std::nullopt;
}

void* Storage::allocate(Stream* stream) {
  if (bytes_ == 0) return nullptr;
  if (on_cpu() && bytes_ <= kInlineBytes) {
    data_.store(inline_, std::memory_order_release);
    return inline_;
  }
  // Two readers may allocate at the same time, if the memory has never been written.
  while (allocating_.exchange(true, std::memory_order_acquire)) sched_yield();
  void* data = data_.load(std::memory_order_relaxed);
  try {
    if (data == nullptr) data = device_->allocate(bytes_, stream);
  } catch (...) {
    allocating_.store(false, std::memory_order_release);
    throw;
  }
  data_.store(data, std::memory_order_release);
  allocating_.store(false, std::memory_order_release);
  return data;
}

void Storage::free_data(void* data) noexcept {
  if (release_ != nullptr) {
    try {
      if (*release_) (*release_)();
    } catch (...) {
      log(LogLevel::error,
          "[NDArray] the function that releases external memory threw: ", current_exception_text());
    }
    delete release_;
  } else if (data != nullptr && data != inline_) {
    device_->free(data);
  }
}

namespace {

// The operation that frees memory of a device, in the order of the stream on which it runs.
struct FreeOnDevice {
  using RunsEvenWhenCancelled = void;
  Device* device;
  void* data;

  FreeOnDevice(Device* d, void* p) : device(d), data(p) {}
  FreeOnDevice(FreeOnDevice&& other) noexcept
      : device(other.device), data(std::exchange(other.data, nullptr)) {}
  // If the operation did not run, the device is lost or the engine has ended, so nothing uses the memory.
  ~FreeOnDevice() { device->free(data); }
  void operator()(RunContext c) { device->free(std::exchange(data, nullptr), c.stream()); }
};

}  // namespace

// The operation that destroys a storage of the CPU after devices have finished their work on it.
struct Storage::Ending {
  using RunsEvenWhenCancelled = void;
  Storage* storage;

  explicit Ending(Storage* s) : storage(s) {}
  Ending(Ending&& other) noexcept : storage(std::exchange(other.storage, nullptr)) {}
  ~Ending() {
    if (storage != nullptr) end(storage);
  }
  void operator()() {}
};

void Storage::end(Storage* storage) noexcept {
  storage->free_data(storage->data());
  detail::Ref<detail::ReplayCount>::release(storage->maker_.load(std::memory_order_relaxed));
  std::destroy_at(storage);
  detail::free_block(detail::BlockKind::storage, storage);
}

// Memory of an accelerator is given back before the operations that wait to be issued, which need memory.
constexpr int kFreePriority = std::numeric_limits<int16_t>::max();

// Called when there is no owner left. Operations own their storages until they have run, so no operation of
// the CPU uses this one any more. A device may still use it.
void Storage::destroy(Storage* storage) noexcept {
  if (storage->var_ready_.load(std::memory_order_acquire) != kReady) return end(storage);
  Engine& engine = *storage->engine_;
  const Var var = storage->var_;
  const bool tainted = (storage->state_.load(std::memory_order_relaxed) & (kTainted | kShared)) != 0;
  // If the engine has ended, the push fails and destroys the job, whose destructor frees the memory.
  const auto try_push = [&](auto&& job, Context context, int priority) {
    try {
      engine.push(std::forward<decltype(job)>(job),
                  {.writes = {var}, .context = context, .priority = priority, .name = "free"});
    } catch (const Error&) {
    }
  };
  if (!storage->on_cpu()) {
    void* const data = storage->data_.exchange(nullptr);
    if (data != nullptr) try_push(FreeOnDevice(storage->device_, data), storage->context_, kFreePriority);
    end(storage);
  } else if (tainted) {
    try_push(Ending(storage), cpu(), 0);
  } else {
    end(storage);
  }
  try {
    engine.delete_var(var);
  } catch (const Error&) {
  }
}

}  // namespace mx
