#include "engine/engine.h"

#include <pthread.h>

#include <cstdlib>
#include <mutex>
#include <unordered_set>

#include "engine/detail/engine_impl.h"
#include "engine/detail/engine_load.h"
#include "engine/detail/segment_impl.h"

namespace mx {

Engine& Engine::get() {
  // Never destroyed: arrays of static lifetime may be freed after the engine has drained at exit.
  static Engine* engine = [] {
    auto* made = new Engine(EngineOptions::from_environment());
    std::atexit([] {
      if (detail::EngineImpl::forked()) return;
      // If exit() was called inside an operation, perhaps of another engine, waiting for it would never
      // return.
      detail::inside_operation() ? get().impl_->abandon() : get().shutdown();
    });
    return made;
  }();
  return *engine;
}

Engine::Engine(const EngineOptions& options) : impl_(new detail::EngineImpl(options)) {}

Engine::~Engine() {
  if (detail::EngineImpl::forked()) {
    return;  // the engine's threads do not exist in the child process, so nothing can be drained
  }
  if (detail::inside_operation()) {
    // Usually because the operation called exit(). That operation cannot be waited for, so the engine stays
    // allocated.
    impl_->abandon();
    return;
  }
  impl_->shutdown();
  delete impl_;
}

Var Engine::new_var(const char* name) { return impl_->new_var(name); }
void Engine::delete_var(Var v) { impl_->delete_var(v); }

detail::Op* Engine::begin_push(const detail::OpType* type, const PushOptions& options,
                               const std::source_location& where) {
  return impl_->begin_push(type, options, where);
}
void Engine::abandon_push(detail::Op* op) noexcept { impl_->abandon_push(op); }
void Engine::end_push(detail::Op* op) { impl_->end_push(op); }

void Engine::wait(Var v) { impl_->wait(v, -1); }
bool Engine::wait(Var v, int64_t timeout_ms) { return impl_->wait(v, timeout_ms < 0 ? 0 : timeout_ms); }
void Engine::wait_all() { impl_->wait_all(-1); }
bool Engine::wait_all(int64_t timeout_ms) { return impl_->wait_all(timeout_ms < 0 ? 0 : timeout_ms); }
void Engine::recover(Var v, std::source_location where) { impl_->recover(v, where); }
void Engine::cancel() { impl_->cancel(); }
void Engine::pause() { impl_->pause(); }
void Engine::resume() { impl_->resume(); }
bool Engine::direct() const { return impl_->direct(); }
bool Engine::recording() const { return detail::current_task.recording_engine == impl_; }
std::optional<std::string> Engine::undeclared_in(Var v, bool write) {
  return detail::EngineImpl::undeclared_in(v, write);
}
void Engine::shutdown() { impl_->shutdown(); }
const EngineOptions& Engine::options() const { return impl_->options(); }
EngineStats Engine::stats() const { return impl_->stats(); }
void Engine::profiler_start() { impl_->profile(true); }
void Engine::profiler_stop() { impl_->profile(false); }
void Engine::write_trace(const std::string& path) const { impl_->profiler().write_trace(path); }
void Engine::write_dot(std::ostream& out) const { impl_->profiler().write_dot(out); }

Segment Engine::record(const std::function<void()>& program, const RecordOptions& options) {
  impl_->check_usable("record");
  MX_CHECK(program != nullptr, InvalidArgument, "[record] expected a program to record, got a null function");
  MX_CHECK(detail::current_task.recording == nullptr, InvalidState,
           "[record] expected no recording in progress on this thread, got a nested one");
  auto segment = std::make_shared<detail::SegmentImpl>(*impl_);
  struct Recording {
    Recording(detail::SegmentImpl* impl, detail::EngineImpl* engine) {
      detail::current_task.recording = impl;
      detail::current_task.recording_engine = engine;
    }
    ~Recording() {
      detail::current_task.recording = nullptr;
      detail::current_task.recording_engine = nullptr;
    }
  };
  {
    Recording recording(segment.get(), impl_);
    program();
  }
  segment->finish(options.device_graph);
  return Segment(std::move(segment));
}

bool detail::EngineLoad::crowded(const Engine& engine) { return engine.impl_->crowded(); }
bool detail::EngineLoad::second_thread_searches(const Engine& engine) {
  return engine.impl_->second_thread_searches();
}

const char* intern(const std::string& name) {
  static std::mutex mutex;
  static auto* names = new std::unordered_set<std::string>;
  std::lock_guard lock(mutex);
  return names->insert(name).first->c_str();
}

}  // namespace mx
