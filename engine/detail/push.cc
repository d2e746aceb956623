// The pusher's side: it builds an operation, submits it, and waits if too much is in flight.
#include <algorithm>
#include <functional>
#include <map>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/cpus.h"
#include "engine/base/thread_kept.h"
#include "engine/detail/engine_inl.h"
#include "engine/detail/link_writer.h"
#include "engine/detail/segment_impl.h"
#include "engine/device/registry.h"

namespace mx::detail {

thread_local constinit ThreadState tls;

namespace {

// A worker that runs short operations takes the lock again within this time.
constexpr double kComeBackUs = 2;

// Engines by id. A thread that ends returns its cached operations through this table, if their engine still
// exists.
struct EngineTable {
  struct Entry {
    EngineImpl* engine = nullptr;
    int users = 0;  // of with_engine()
  };
  std::mutex mutex;
  std::condition_variable unused;
  std::map<uint32_t, Entry> engines;
};

EngineTable& engine_table() {
  static auto* table = new EngineTable;  // threads may end after static destructors
  return *table;
}

// Returns the cached operations of a thread that ends. Accessed only when the cache is refilled, so that the
// hot path reads a thread_local without a constructor. A forked child returns nothing: another thread of the
// parent may have held the mutexes at the fork.
struct CacheJanitor {
  bool armed = false;
  ~CacheJanitor() {
    if (tls.cache != nullptr && !EngineImpl::forked()) EngineImpl::return_cache(tls.cache_engine, tls.cache);
    tls.cache = nullptr;
    tls.cache_engine = 0;
  }
};
thread_local CacheJanitor janitor;

// Merges an access into the link of the same variable: equal accesses stay what they are, different ones
// become an update.
void merge(Link& into, Access access) {
  if (into.access() != access) into.set(into.var(), Access::update);
}

}  // namespace

void register_engine(uint32_t id, EngineImpl* engine) {
  std::lock_guard lock(engine_table().mutex);
  engine_table().engines[id] = {engine, 0};
}

void unregister_engine(uint32_t id) {
  EngineTable& table = engine_table();
  std::unique_lock lock(table.mutex);
  EngineTable::Entry& entry = table.engines[id];
  entry.engine = nullptr;
  table.unused.wait(lock, [&] { return entry.users == 0; });
  table.engines.erase(id);
}

void with_engine(uint32_t id, const std::function<void(EngineImpl&)>& f) {
  // f is called without the mutex: in the inline modes it may run operations, which may call this function.
  EngineTable& table = engine_table();
  std::unique_lock lock(table.mutex);
  const auto found = table.engines.find(id);
  if (found == table.engines.end() || found->second.engine == nullptr) return;
  ++found->second.users;
  EngineImpl& engine = *found->second.engine;
  lock.unlock();
  const auto leave = [&] {
    lock.lock();
    if (--found->second.users == 0) table.unused.notify_all();
  };
  try {
    f(engine);
  } catch (...) {
    leave();  // otherwise the engine's destructor would wait for this call for ever
    throw;
  }
  leave();
}

void EngineImpl::return_cache(uint32_t engine_id, Op* chain) {
  with_engine(engine_id, [&](EngineImpl& engine) { engine.op_pool_.give_chain(chain); });
}

// Replaces the thread's cache by operations of this engine. Throws OutOfMemory.
void EngineImpl::refill_cache() {
  janitor.armed = true;
  if (tls.cache != nullptr) return_cache(tls.cache_engine, tls.cache);
  tls.cache = nullptr;
  tls.cache_engine = id_;
  tls.cache = op_pool_.take_chain();
}

Op* EngineImpl::allocate() { return take_cached(); }

inline Op* EngineImpl::take_cached() {
  ThreadState& thread = tls;
  if (thread.cache_engine != id_ || thread.cache == nullptr) [[unlikely]]
    refill_cache();
  Op* op = thread.cache;
  thread.cache = op->next();
  return op;
}

// If the function's constructor has used another engine, the thread's cache now belongs to that engine. Then
// the operation is returned to the pool.
void EngineImpl::free_unsubmitted(Op* op) noexcept {
  if (tls.cache_engine == id_) return prepend_blocks(op, tls.cache);
  Op* chain = nullptr;
  prepend_blocks(op, chain);
  give_ops(chain);
}

void EngineImpl::check_var(const Var& v, const char* call) const {
  if (v.engine != id_ || !VarPool::alive(v)) [[unlikely]]
    refuse_var(v, call);
}

void EngineImpl::refuse_var(const Var& v, const char* name) const {
  const std::string call = name_or_default(name);
  MX_CHECK(v.block != nullptr, InvalidHandle, "[", call, "] expected a variable, got a null handle");
  MX_CHECK(v.engine == id_, InvalidHandle, "[", call, "] expected a variable of this engine (", id_,
           "), got one of engine ", v.engine);
  throw InvalidHandle(concat("[", call, "] expected a live variable, got one that was deleted"));
}

// Fills the links of an operation of up to kInlineLinks variables. Compares each variable with those before
// it to find duplicates.
inline void EngineImpl::fill_links(Op* op, const PushOptions& options) {
  size_t n = 0;
  const auto add = [&](const VarList& list, Access access) {
    for (const Var& v : list) {
      // An engine's id is never 0, so a null handle fails the first test and is not dereferenced.
      if (v.engine != id_ || !VarPool::alive(v)) [[unlikely]]
        refuse_var(v, options.name);
      const uintptr_t block = reinterpret_cast<uintptr_t>(v.block);
      bool merged = false;
      for (size_t i = 0; i < n; ++i) {
        Link& before = op->link(i);
        if ((before.var_and_access ^ block) < 8) [[unlikely]] {
          merge(before, access);
          merged = true;
        }
      }
      if (!merged) [[likely]] {
        Link& link = op->link(n++);
        link.var_and_access = block | static_cast<uintptr_t>(access);
        link.generation = v.generation;
      }
    }
  };
  add(options.reads, Access::read);
  add(options.writes, Access::write);
  add(options.updates, Access::update);
  op->links = static_cast<uint8_t>(n);
}

// Fills the links of an operation of any number of variables: sorts them and merges equal neighbours. The
// thread keeps the buffer for its next call.
void EngineImpl::fill_many_links(Op* op, const PushOptions& options) {
  struct Tag;
  std::vector<Link>& all = thread_kept<std::vector<Link>, Tag>();
  all.clear();
  const auto collect = [&](const VarList& list, Access access) {
    for (const Var& v : list) {
      if (v.engine != id_ || !VarPool::alive(v)) [[unlikely]]
        refuse_var(v, options.name);
      Link& link = all.emplace_back();
      link.set(v.block, access);
      link.generation = v.generation;
    }
  };
  collect(options.reads, Access::read);
  collect(options.writes, Access::write);
  collect(options.updates, Access::update);
  std::sort(all.begin(), all.end(),
            [](const Link& a, const Link& b) { return std::less<>()(a.var_and_access, b.var_and_access); });
  LinkWriter writer(*this, op);
  for (size_t i = 0; i < all.size();) {
    Link link = all[i];
    for (++i; i < all.size() && all[i].var() == link.var(); ++i) merge(link, all[i].access());
    writer.add(link.var(), link.access(), link.generation);
  }
}

Op* EngineImpl::begin_push(const OpType* type, const PushOptions& options,
                           const std::source_location& where) {
  if (refusing_.load(std::memory_order_relaxed) || forked()) [[unlikely]]
    check_usable(options.name);
  Op* op = nullptr;
  try {
    op = take_cached();
    op->type = type;
    op->set_header(type->async ? kOpAsync : 0, 0, 0);
    OpCold& cold = op->cold();
    cold.name = options.name;
    cold.where = where;
    if (options.reads.size() + options.writes.size() + options.updates.size() <= kInlineLinks) [[likely]] {
      fill_links(op, options);
    } else {
      fill_many_links(op, options);
    }
    const Context& context = options.context;
    const uint64_t rare = static_cast<uint64_t>(context.kind) | static_cast<uint64_t>(options.lane.get()) |
                          static_cast<uint64_t>(options.priority.get()) | options.bytes.get();
    if (rare != 0) [[unlikely]]
      fill_rare(op, options);
  } catch (...) {
    refuse_push(op, options, where);
  }
  return op;
}

void EngineImpl::fill_rare(Op* op, const PushOptions& options) {
  op->priority = clamp_priority(options.priority);
  const Context context = options.context;
  if (!context.is_cpu() || options.lane != StreamKind::compute)
    op->device = lane_index(context, options.lane);
  if (options.bytes != 0) {
    op->flags |= kOpHasBytes;
    bytes_place(op) = options.bytes;
    run_ahead_.bytes_pushed(options.bytes);
  }
}

// Called in an exception handler. Undoes what begin_push() has done and rethrows the exception; a
// std::bad_alloc becomes an OutOfMemory that names the operation.
void EngineImpl::refuse_push(Op* op, const PushOptions& options, const std::source_location& where) {
  if (op != nullptr) free_unsubmitted(op);
  try {
    throw;
  } catch (const std::bad_alloc&) {
    throw_no_memory(options.name, where);
  }
}

void EngineImpl::forget_bytes(Op* op) noexcept {
  if ((op->flags & kOpHasBytes) == 0) return;
  run_ahead_.bytes_withdrawn(bytes_of(op));
  op->flags &= static_cast<uint8_t>(~kOpHasBytes);
}

void EngineImpl::abandon_push(Op* op) noexcept {
  forget_bytes(op);
  free_unsubmitted(op);
}

// Called when an operation of a device or of a communication lane has been pushed or has become ready. If no
// worker is about to take it, calls one beyond the number of threads. Otherwise the operation would wait
// until some operation of the CPU ends, however long that takes.
void EngineImpl::call_beyond_limit() {
  if (inline_mode_ || single_ || paused_hint_.load(std::memory_order_relaxed)) return;
  const auto attended = [this] {
    return policy_.any_searching() || policy_.on_its_way() ||
           (hurried_.load(std::memory_order_relaxed) == 0 && !lanes_wait());
  };
  // A worker that runs short operations sees attention_ and takes the lock again sooner than a worker that is
  // called. So give the running workers that time first.
  const uint64_t begin = ticks();
  while (ticks() - begin < static_cast<uint64_t>(kComeBackUs * ticks_per_us())) {
    if (attended()) return;
    cpu_relax();
  }
  start_worker();
}

inline void EngineImpl::call_worker() {
  // The ring's compare-and-swap and the load in none_active() are sequentially consistent, and so are a
  // leaving worker's decrement and its last look at the ring. So either this thread sees that the worker has
  // left, or the worker sees the operation.
  if (policy_.none_active()) [[unlikely]] {
    if (inline_mode_ || paused_hint_.load(std::memory_order_relaxed)) return;
    if (!single_) {
      start_worker();
    } else if (!monitor_awake_.load(std::memory_order_seq_cst)) {
      // With a single processor, a worker gains nothing while this thread pushes or waits, and calling one
      // costs as much as fifty operations. If this thread does neither, the monitor calls a worker.
      wake_monitor();
    }
  } else if (!policy_.any_searching() && more_workers_wanted()) [[unlikely]] {
    start_worker();
  }
}

void EngineImpl::wake_after_submit() { call_worker(); }

inline uint64_t EngineImpl::try_submit(Op* op) {
  if (tls.ring_engine != id_) [[unlikely]] {
    tls.ring_engine = id_;
    tls.ring_hint = 0;
  }
  return ring_.try_push(op, tls.ring_hint);
}

// Returns the place in the ring after the last operation whose push happened before this call.
uint64_t EngineImpl::tail() const { return ring_.tail(tls.ring_engine == id_ ? tls.ring_hint : 0); }

// Puts the operation into the ring and sees to it that a worker comes. Returns false if shutdown() has
// overtaken a deletion, which is dropped then; throws if it has overtaken another operation. Always inlined,
// so that an ordinary operation pays nothing for the two conditions.
[[gnu::always_inline]] inline bool EngineImpl::enter_ring(Op* op, bool internal, bool has_bytes) {
  const uint64_t ticket = try_submit(op);
  if (ticket == SubmitRing<Op>::kFull) [[unlikely]] {
    submit_slowly(op, internal);
  } else if (refusing_.load(std::memory_order_seq_cst)) [[unlikely]] {
    // The ring's swap and this load are sequentially consistent, as are the store in shutdown() and its last
    // look at the ring. So either shutdown() sees the operation there, or this thread sees the flag.
    if (refuse_if_late(op, ticket)) return false;
  } else if (((ticket & 63) == 0 || has_bytes) && !internal) [[unlikely]] {
    throttle(ticket);
  }
  call_worker();
  return true;
}

inline void EngineImpl::submit(Op* op) {
  if (op->kind() != 0) [[unlikely]] {
    submit_special(op);
  } else {
    enter_ring(op, false, false);
  }
}

// Not inlined, so that ordinary operations do not save the registers that this function needs.
[[gnu::noinline]] void EngineImpl::submit_special(Op* op) {
  // Deletions and recoveries never wait.
  const bool internal = op->device == kInternalLane && op->type != &kReplayGroupType;
  const bool has_bytes = run_ahead_.limits_bytes() && (op->flags & kOpHasBytes) != 0;
  // Without an active worker, enter_ring() calls one, which is enough.
  const bool other_lane = op->device != 0 && op->device != kInternalLane && policy_.active() > 0;
  if (hurries(op)) {
    // Makes workers look at the ring before they go on with their batch or take older operations. drain()
    // subtracts both counts again.
    hurried_.fetch_add(1, std::memory_order_relaxed);
    attention_.fetch_add(1, std::memory_order_relaxed);
  }
  const Lane* const lane = other_lane ? &lanes_[op->device] : nullptr;
  // The worker that issues for the device drains the ring when it comes back, so another one would only
  // contend with it.
  if (enter_ring(op, internal, has_bytes) && lane != nullptr && !lanes_.is_attended(*lane))
    call_beyond_limit();
}

void EngineImpl::end_push(Op* op) {
  if (current_task.recording_engine == this) [[unlikely]] {
    if (record(op)) return;
  }
  submit(op);
  if (inline_mode_) [[unlikely]]
    run_inline(options_.mode == EngineMode::naive, true);
}

void EngineImpl::submit_slowly(Op* op, bool internal) {
  // Workers drain the ring whenever they take the lock. If none does, because all are in long operations or
  // the engine is paused, the pusher drains it.
  uint64_t seen = ring_.head();
  for (int turn = 0;; ++turn) {
    if (const uint64_t ticket = try_submit(op); ticket != SubmitRing<Op>::kFull) {
      if (refusing_.load(std::memory_order_seq_cst)) refuse_if_late(op, ticket);
      return;
    }
    const uint64_t head = ring_.head();
    if (head != seen && !inline_mode_) {
      seen = head;
      turn = 0;
    }
    if (turn < 32 && !inline_mode_ && (single_ || policy_.active() > 0)) {
      if (policy_.active() == 0) start_worker();
      sched_yield();
      continue;
    }
    lock_.lock();
    drain(kDrainLimit);
    drain(kDrainLimit);
    unlock();
    wake_after_submit();
    if (!inside_operation() && !internal) throttle(ring_.head());
  }
}

// If shutdown() has returned, or will, without the operation that has this place in the ring: throws, except
// for a deletion, for which it returns true. The operation will be taken from the ring but not touched
// (drain()), so it still belongs to this thread. Otherwise the operation may have run and gone. (Not inlined,
// so that an ordinary push does not save the registers that this function needs.)
[[gnu::noinline]] bool EngineImpl::refuse_if_late(Op* op, uint64_t ticket) {
  lock_.lock();
  const bool late = ticket >= closed_at_;
  unlock();
  if (!late) return false;
  const char* const name = op->cold().name;
  const bool deletes = op->type == &kDeleteType;
  if (hurries(op)) {
    hurried_.fetch_sub(1, std::memory_order_relaxed);
    attention_.fetch_sub(1, std::memory_order_relaxed);
  }
  destroy_function(op);
  abandon_push(op);
  if (!deletes) throw_shut_down(name);
  return true;
}

// Pushes an operation with links that need no check, because they are those of a segment, which pins its
// variables.
void EngineImpl::push_links(const OpType* type, const std::vector<Link>& links, int priority, uint8_t device,
                            const char* name, const std::source_location& where,
                            void (*construct)(Op*, void*), void* argument) {
  Op* op = allocate();
  op->type = type;
  op->set_header(type->async ? kOpAsync : 0, clamp_priority(priority), device);
  op->cold().name = name;
  op->cold().where = where;
  try {
    LinkWriter writer(*this, op);
    for (const Link& link : links) writer.add(link.var(), link.access(), link.generation);
    construct(op, argument);
  } catch (...) {
    free_unsubmitted(op);
    throw;
  }
  end_push(op);
}

void EngineImpl::push_internal(Op* op, const OpType* type, VarBlock* var, uint64_t generation,
                               const std::source_location& where) {
  op->type = type;
  op->set_header(0, 0, kInternalLane);
  op->links = 1;
  OpCold& cold = op->cold();
  cold.name = type == &kDeleteType ? "delete_var" : "recover";
  cold.where = where;
  op->link(0).set(var, Access::update);
  op->link(0).generation = generation;
  end_push(op);
}

Var EngineImpl::new_var(const char* name) {
  check_usable("new_var");
  VarBlock* block = nullptr;
  try {
    block = var_pool_.take(name);
  } catch (const std::bad_alloc&) {
    throw_no_memory(name != nullptr ? name : "new_var", std::source_location::current());
  }
  return {block, VarPool::generation_of(block).load(std::memory_order_relaxed), id_};
}

void EngineImpl::delete_var(Var v) {
  if (v.block == nullptr || refusing_.load() || forked()) return;
  MX_CHECK(v.engine == id_, InvalidHandle, "[delete_var] expected a variable of this engine (", id_,
           "), got one of engine ", v.engine);
  Op* op = allocate();  // before anything changes
  if (!VarPool::end_generation(v)) {
    free_unsubmitted(op);
    throw InvalidHandle("[delete_var] expected a live variable, got one that was deleted");
  }
  push_internal(op, &kDeleteType, v.block, Link::kAnyGeneration, std::source_location::current());
}

void EngineImpl::recover(Var v, const std::source_location& where) {
  check_usable("recover");
  MX_CHECK(current_task.recording_engine != this, InvalidState,
           "[recover] expected a call from outside of record(), got one from inside");
  check_var(v, "recover");
  push_internal(allocate(), &kRecoverType, v.block, v.generation, where);
}

uint8_t EngineImpl::lane_index(Context context, StreamKind kind) {
  if (const uint8_t known = lanes_.find(context, kind)) return known;
  if (!context.is_cpu()) {
    get_device(context);  // throws for a device that is not there, before anything changes
    make_streams();       // needed before any operation of an accelerator is queued
  }
  return lanes_.find_or_add(context, kind, lock_);
}

}  // namespace mx::detail
