// The thread that runs the work of all streams, one task at a time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

#include "tests/cuda/fake/state.h"

namespace mx::fake_cuda {
namespace {

struct Candidate {
  int device;
  cudaStream_t stream;
  std::shared_ptr<Item> item;
  size_t task;
};

bool all_done(const std::vector<DonePtr>& after) {
  return std::all_of(after.begin(), after.end(), [](const DonePtr& d) { return d->done; });
}

bool is_ready(const Item& item, const Task& task) {
  return !task.ended && std::all_of(task.after.begin(), task.after.end(),
                                    [&](size_t before) { return item.tasks[before].ended; });
}

std::vector<Candidate> candidates(State& s) {
  std::vector<Candidate> found;
  for (size_t d = 0; d < s.devices.size(); ++d) {
    for (const cudaStream_t stream : s.devices[d].streams) {
      if (stream->queue.empty() || !all_done(stream->queue.front()->after)) continue;
      const std::shared_ptr<Item>& item = stream->queue.front();
      for (size_t i = 0; i < item->tasks.size(); ++i)
        if (is_ready(*item, item->tasks[i])) found.push_back({static_cast<int>(d), stream, item, i});
    }
  }
  std::shuffle(found.begin(), found.end(), s.random);
  return found;
}

void finish_item(State& s, CUstream_st& stream, Item& item) {
  item.done->done = true;
  stream.queue.pop_front();
  if (!stream.alive && stream.queue.empty()) {
    auto& all = s.devices[static_cast<size_t>(stream.device)].streams;
    all.erase(std::find(all.begin(), all.end(), &stream));
  }
  s.changed.notify_all();
}

/// Runs a task without the lock. Returns false if it is not done yet.
bool run_task(Lock& lock, const Candidate& c) {
  State& s = state();
  cudaError_t fault = cudaSuccess;
  std::string text;
  bool ended = true;
  Step& step = c.item->tasks[c.task].step;
  lock.unlock();
  try {
    ended = step();
  } catch (const Fault& f) {
    fault = f.code;
    text = cudaGetErrorName(f.code);
  } catch (const std::exception& e) {
    fault = cudaErrorLaunchFailure;
    text = e.what();
  }
  if (ended) step = nullptr;  // what it holds is freed outside the lock, too
  lock.lock();
  if (fault != cudaSuccess) {
    s.fault_text = text;
    lose_device(c.device, fault);
  }
  return ended;
}

/// Looks once at everything that can run. Returns false if nothing has changed.
bool run_round(Lock& lock) {
  State& s = state();
  bool progress = false;
  for (const Candidate& c : candidates(s)) {
    // A device that has been lost meanwhile has dropped its work.
    if (c.stream->queue.empty() || c.stream->queue.front() != c.item) continue;
    Task& task = c.item->tasks[c.task];
    if (task.delay > 0) {
      --task.delay;
      progress = true;
      continue;
    }
    task.started = true;
    if (!run_task(lock, c)) continue;
    task.ended = true;
    progress = true;
    if (c.stream->queue.empty() || c.stream->queue.front() != c.item) continue;
    if (std::all_of(c.item->tasks.begin(), c.item->tasks.end(), [](const Task& t) { return t.ended; }))
      finish_item(s, *c.stream, *c.item);
  }
  return progress;
}

[[noreturn]] void schedule() {
  State& s = state();
  Lock lock(s.mutex);
  while (true) {
    if (run_round(lock)) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    } else if (candidates(s).empty()) {
      s.appended.wait(lock);
    } else {
      s.appended.wait_for(lock, std::chrono::microseconds(20));  // tasks wait for the host
    }
  }
}

int some_delay(State& s) {
  return static_cast<int>(s.random() % static_cast<uint64_t>(s.options.most_delay + 1));
}

}  // namespace

bool nothing() { return true; }

std::shared_ptr<Item> item_of(Step step) {
  auto item = std::make_shared<Item>();
  item->tasks.emplace_back();
  item->tasks.back().step = std::move(step);
  return item;
}

void append_item(CUstream_st& stream, std::shared_ptr<Item> item) {
  static std::once_flag once;
  std::call_once(once, [] { std::thread(schedule).detach(); });
  State& s = state();
  DeviceState& device = s.devices[static_cast<size_t>(stream.device)];
  // The legacy stream waits for all blocking streams, and they wait for it.
  if (stream.legacy) {
    for (const cudaStream_t other : device.streams)
      if (other->blocking && other->last != nullptr) item->after.push_back(other->last);
  } else if (stream.blocking && device.legacy->last != nullptr) {
    item->after.push_back(device.legacy->last);
  }
  if (item->tasks.empty()) item->tasks.emplace_back().step = nothing;
  for (Task& task : item->tasks) task.delay = some_delay(s);
  stream.last = item->done;
  stream.queue.push_back(std::move(item));
  s.appended.notify_one();
}

bool is_idle(const DeviceState& device) {
  return std::all_of(device.streams.begin(), device.streams.end(),
                     [](cudaStream_t stream) { return stream->queue.empty(); });
}

cudaError_t wait_idle(Lock& lock, int device) {
  State& s = state();
  const DeviceState& waited = s.devices[static_cast<size_t>(device)];
  s.changed.wait(lock, [&] { return waited.lost != cudaSuccess || is_idle(waited); });
  return waited.lost;
}

cudaError_t wait_done(Lock& lock, int device, const DonePtr& done) {
  State& s = state();
  const DeviceState& waited = s.devices[static_cast<size_t>(device)];
  s.changed.wait(lock, [&] { return waited.lost != cudaSuccess || done == nullptr || done->done; });
  return waited.lost;
}

cudaError_t wait_stream(Lock& lock, CUstream_st& stream) {
  return wait_done(lock, stream.device, stream.last);
}

cudaError_t stop_world(Lock& lock, int device) {
  State& s = state();
  s.stopped = true;
  s.stopper = std::this_thread::get_id();
  const cudaError_t code = wait_idle(lock, device);
  s.stopped = false;
  s.changed.notify_all();
  return code;
}

void lose_device(int device, cudaError_t code) {
  State& s = state();
  DeviceState& lost = s.devices[static_cast<size_t>(device)];
  if (lost.lost == cudaSuccess) lost.lost = code;
  for (const cudaStream_t stream : lost.streams) {
    for (const std::shared_ptr<Item>& item : stream->queue) item->done->done = true;
    stream->queue.clear();
  }
  s.changed.notify_all();
}

void lose(int device, cudaError_t code) {
  Lock lock(state().mutex);
  lose_device(device, code);
}

}  // namespace mx::fake_cuda
