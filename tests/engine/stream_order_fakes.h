// Fake devices for tests of StreamOrder. Nothing happens until the test says so: a stream is a list of items,
// and step() executes the next one. Single-threaded and deterministic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/device.h"
#include "engine/device/registry.h"

namespace mx::test {

class FakePoint : public EventPoint {
 public:
  EventStatus query() const noexcept override { return status_; }
  std::exception_ptr error() const noexcept override { return error_; }
  void when_reached(std::function<void()> callback) override {
    if (status_ != EventStatus::pending) return callback();
    callbacks_.push_back(std::move(callback));
  }
  void reach(std::exception_ptr error) {
    status_ = error ? EventStatus::failed : EventStatus::complete;
    error_ = std::move(error);
    for (auto& callback : callbacks_) callback();
    callbacks_.clear();
  }

 private:
  EventStatus status_ = EventStatus::pending;
  std::exception_ptr error_;
  std::vector<std::function<void()>> callbacks_;
};

class FakeEvent : public Event {
 public:
  EventStatus query() const noexcept override {
    ++queries;
    return point_ == nullptr ? EventStatus::unrecorded : point_->query();
  }
  std::exception_ptr error() const noexcept override { return point_ == nullptr ? nullptr : point_->error(); }
  std::shared_ptr<EventPoint> latest() const override { return point_; }
  void set_latest(std::shared_ptr<EventPoint> point) override { point_ = std::move(point); }

  static inline uint64_t queries = 0;

 private:
  std::shared_ptr<EventPoint> point_;
};

class FakeDevice;

class FakeStream : public Stream {
 public:
  FakeStream(FakeDevice& device, StreamKind kind);
  ~FakeStream() override;
  Device& device() const override;
  StreamKind kind() const override { return kind_; }
  void submit(Task task) override;
  void record(Event& event) override;
  void wait_point(std::shared_ptr<EventPoint> point) override;
  std::shared_ptr<EventPoint> mark() override;
  void notify(std::function<void(std::exception_ptr)>) override {}
  void synchronize() override {}

  /// Executes the next item. Returns false if there is none or if it waits for another stream.
  bool step();
  bool empty() const { return items_.empty(); }
  /// Simulates the loss of the device: no further item is executed, and all records fail.
  void lose(std::exception_ptr error);

  /// Every item that was ever enqueued. At most one of the two fields is set; an item with neither is a task.
  struct Entry {
    std::shared_ptr<FakePoint> record;
    std::shared_ptr<EventPoint> wait;
  };
  std::vector<Entry> log;

 private:
  struct Item {
    Task task;
    Entry entry;
  };
  FakeDevice& device_;
  StreamKind kind_;
  std::deque<Item> items_;
  std::exception_ptr error_;  // error of the tasks since the last record
};

class FakeDevice : public Device {
 public:
  FakeDevice(Context context) : context_(context) { properties_.compute_streams = 4; }
  Context context() const override { return context_; }
  const DeviceProperties& properties() const override { return properties_; }
  void* allocate(size_t, Stream*) override { return nullptr; }
  void free(void*, Stream*) noexcept override {}
  void note_use(void*, Stream&) override {}
  void copy_async(void*, Context, const void*, Context, size_t, Stream&) override {}
  std::unique_ptr<Stream> new_stream(StreamKind kind) override {
    if (fail_streams) throw DeviceError("no stream");
    return std::make_unique<FakeStream>(*this, kind);
  }
  std::unique_ptr<Event> new_event() override {
    ++events_made;
    return std::make_unique<FakeEvent>();
  }
  std::exception_ptr lost() const noexcept override { return lost_; }
  MemoryStats memory_stats() const override { return {}; }
  void reset_peak_memory() override {}
  size_t trim_memory() override { return 0; }
  void set_memory_watermark(size_t) override {}

  void lose() {
    lost_ = std::make_exception_ptr(DeviceError("device lost"));
    for (FakeStream* stream : streams) stream->lose(lost_);
  }
  void reset() {
    lost_ = nullptr;
    fail_streams = throw_on_wait = throw_on_record = false;
    events_made = 0;
  }

  std::vector<FakeStream*> streams;  // existing streams in the order of their creation
  int events_made = 0;
  bool fail_streams = false;
  bool throw_on_wait = false;
  bool throw_on_record = false;

 private:
  Context context_;
  DeviceProperties properties_;
  std::exception_ptr lost_;
};

inline FakeStream::FakeStream(FakeDevice& device, StreamKind kind) : device_(device), kind_(kind) {
  device_.streams.push_back(this);
}
inline FakeStream::~FakeStream() { std::erase(device_.streams, this); }
inline Device& FakeStream::device() const { return device_; }

inline void FakeStream::submit(Task task) {
  log.push_back({});
  if (device_.lost() == nullptr) items_.push_back({std::move(task), {}});
}

inline std::shared_ptr<EventPoint> FakeStream::mark() {
  auto point = std::make_shared<FakePoint>();
  log.push_back({point, nullptr});
  if (device_.lost() != nullptr) {
    point->reach(device_.lost());
  } else {
    items_.push_back({nullptr, {point, nullptr}});
  }
  return point;
}

inline void FakeStream::record(Event& event) {
  if (device_.throw_on_record) throw DeviceError("record failed");
  event.set_latest(mark());
}

inline void FakeStream::wait_point(std::shared_ptr<EventPoint> point) {
  if (device_.throw_on_wait) throw DeviceError("wait failed");
  log.push_back({nullptr, point});
  if (device_.lost() == nullptr) items_.push_back({nullptr, {nullptr, std::move(point)}});
}

inline bool FakeStream::step() {
  if (items_.empty()) return false;
  Item& item = items_.front();
  if (item.entry.wait != nullptr && item.entry.wait->query() == EventStatus::pending) return false;
  if (item.task) {
    KernelContext context(device_, nullptr, 0);
    try {
      item.task(context);
    } catch (...) {
      if (error_ == nullptr) error_ = std::current_exception();
    }
  } else if (item.entry.record != nullptr) {
    item.entry.record->reach(std::exchange(error_, nullptr));
  }
  items_.pop_front();
  return true;
}

inline void FakeStream::lose(std::exception_ptr error) {
  for (Item& item : items_) {
    if (item.entry.record != nullptr) item.entry.record->reach(error);
  }
  items_.clear();
}

inline constexpr int kFakeDevices = 4;

/// The kind of the fake devices, registered on first use.
inline DeviceKind fake_kind() {
  static const DeviceKind kind = register_backend(
      {"fake", [] { return kFakeDevices; },
       [](int id) {
         return std::make_unique<FakeDevice>(Context{fake_kind(), static_cast<uint16_t>(id)});
       }});
  return kind;
}
inline Context fake(int id = 0) { return {fake_kind(), static_cast<uint16_t>(id)}; }
inline FakeDevice& fake_device(int id = 0) { return static_cast<FakeDevice&>(get_device(fake(id))); }

inline std::vector<FakeStream*> fake_streams() {
  std::vector<FakeStream*> all;
  for (int id = 0; id < kFakeDevices; ++id) {
    const auto& streams = fake_device(id).streams;
    all.insert(all.end(), streams.begin(), streams.end());
  }
  return all;
}

/// Executes items of all streams until none can continue.
inline void run_all_streams() {
  for (bool progress = true; progress;) {
    progress = false;
    for (FakeStream* stream : fake_streams()) {
      while (stream->step()) progress = true;
    }
  }
}

/// Executes up to `steps` items of streams chosen at random.
inline void run_some_steps(std::mt19937& random, int steps) {
  const std::vector<FakeStream*> all = fake_streams();
  for (int i = 0; i < steps && !all.empty(); ++i) all[random() % all.size()]->step();
}

/// Returns the time that all enqueued items take if a task takes one unit, streams are FIFOs, all streams run
/// at the same time, and waits are honoured.
inline uint64_t makespan() {
  std::vector<FakeStream*> all = fake_streams();
  std::vector<size_t> next(all.size());
  std::vector<uint64_t> now(all.size());
  std::unordered_map<const EventPoint*, uint64_t> done;
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t i = 0; i < all.size(); ++i) {
      for (; next[i] < all[i]->log.size(); ++next[i], progress = true) {
        const FakeStream::Entry& entry = all[i]->log[next[i]];
        if (entry.wait != nullptr) {
          const auto time = done.find(entry.wait.get());
          if (time == done.end()) break;
          now[i] = std::max(now[i], time->second);
        } else if (entry.record != nullptr) {
          done[entry.record.get()] = now[i];
        } else {
          ++now[i];
        }
      }
    }
  }
  uint64_t longest = 0;
  for (const uint64_t time : now) longest = std::max(longest, time);
  return longest;
}

}  // namespace mx::test
