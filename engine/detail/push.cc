// What a pusher does: builds an operation, submits it, and waits when too much is in flight.
#include <algorithm>
#include <functional>
#include <map>
#include <string_view>

#include "engine/base/check.h"
#include "engine/detail/engine_inl.h"
#include "engine/detail/link_writer.h"
#include "engine/detail/segment_impl.h"
#include "engine/device/registry.h"

namespace mx::detail {

thread_local constinit ThreadState tls;

namespace {

// Engines by id, for threads that end with operations of theirs in the cache.
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

// Gives the cache of an ending thread back. Touched only where the cache is refilled, so that the hot path
// reads a thread-local without a constructor.
struct CacheJanitor {
  bool armed = false;
  ~CacheJanitor() {
    if (tls.cache != nullptr) EngineImpl::return_cache(tls.cache_engine, tls.cache);
    tls.cache = nullptr;
    tls.cache_engine = 0;
  }
};
thread_local CacheJanitor janitor;

// The same variable in several places of one operation is one link: read and write make an update, and two
// writes a write.
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
  // Not under the mutex: f may run operations (in the inline modes), which may come here again.
  EngineTable& table = engine_table();
  std::unique_lock lock(table.mutex);
  const auto found = table.engines.find(id);
  if (found == table.engines.end() || found->second.engine == nullptr) return;
  ++found->second.users;
  EngineImpl& engine = *found->second.engine;
  lock.unlock();
  f(engine);
  lock.lock();
  if (--found->second.users == 0) table.unused.notify_all();
}

void EngineImpl::return_cache(uint32_t engine_id, Op* chain) {
  with_engine(engine_id, [&](EngineImpl& engine) { engine.op_pool_.give_chain(chain); });
}

Op* EngineImpl::allocate() {
  if (tls.cache_engine != id_ || tls.cache == nullptr) [[unlikely]] {
    janitor.armed = true;
    if (tls.cache != nullptr) return_cache(tls.cache_engine, tls.cache);
    tls.cache = nullptr;
    tls.cache_engine = id_;
    tls.cache = op_pool_.take_chain();
  }
  Op* op = tls.cache;
  tls.cache = op->next();
  return op;
}

void EngineImpl::free_unsubmitted(Op* op) noexcept {
  if (op->flags & kOpWide) {
    for (ExtBlock* ext = op->cold().ext; ext != nullptr;) {
      ExtBlock* next = ext->next_block;
      Op* block = reinterpret_cast<Op*>(ext);
      block->next() = tls.cache;
      tls.cache = block;
      ext = next;
    }
  }
  op->next() = tls.cache;
  tls.cache = op;
}

void EngineImpl::check_var(const Var& v, const char* call) const {
  if (v.block != nullptr && v.engine == id_ && VarPool::alive(v)) [[likely]]
    return;
  MX_CHECK(v.block != nullptr, InvalidHandle, "[", call, "] expected a variable, got a null handle");
  MX_CHECK(v.engine == id_, InvalidHandle, "[", call, "] expected a variable of this engine (", id_,
           "), got one of engine ", v.engine);
  throw InvalidHandle(concat("[", call, "] expected a live variable, got one that was deleted"));
}

void EngineImpl::fill_links(Op* op, const PushOptions& options) {
  const size_t total = options.reads.size() + options.writes.size() + options.updates.size();
  if (total <= kInlineLinks) [[likely]] {
    // Look for each among those before it.
    uintptr_t links[kInlineLinks];
    size_t n = 0;
    const auto add = [&](const Var& v, Access access) {
      if (!(v.block != nullptr && v.engine == id_ && VarPool::alive(v))) [[unlikely]] {
        check_var(v, name_or_default(options.name).c_str());
      }
      const uintptr_t block = reinterpret_cast<uintptr_t>(v.block);
      for (size_t i = 0; i < n; ++i) {
        if ((links[i] ^ block) < 8) [[unlikely]] {
          if ((links[i] & 3) != static_cast<uintptr_t>(access)) links[i] = block | uintptr_t(Access::update);
          return;
        }
      }
      links[n++] = block | static_cast<uintptr_t>(access);
    };
    for (const Var& v : options.reads) add(v, Access::read);
    for (const Var& v : options.writes) add(v, Access::write);
    for (const Var& v : options.updates) add(v, Access::update);
    op->links = static_cast<uint8_t>(n);
    if (n > 0) op->link_a[0].var_and_access = links[0];
    if (n > 1) op->link_a[1].var_and_access = links[1];
    if (n > 2) op->link_b[0].var_and_access = links[2];
    if (n > 3) op->link_b[1].var_and_access = links[3];
    return;
  }
  // Many: sort, and merge neighbours. The buffer stays with the thread.
  static thread_local std::vector<Link> all;
  all.clear();
  const auto collect = [&](const VarList& list, Access access) {
    for (const Var& v : list) {
      if (!(v.block != nullptr && v.engine == id_ && VarPool::alive(v))) [[unlikely]] {
        check_var(v, name_or_default(options.name).c_str());
      }
      all.emplace_back().set(v.block, access);
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
    writer.add(link.var(), link.access());
  }
}

Op* EngineImpl::begin_push(const OpType* type, const PushOptions& options,
                           const std::source_location& where) {
  if (refusing_.load(std::memory_order_relaxed) || forked()) [[unlikely]] {
    check_usable(name_or_default(options.name).c_str());
  }
  Op* op = nullptr;
  try {
    op = allocate();
  } catch (const std::bad_alloc&) {
    throw_no_memory(options.name, where);
  }
  op->type = type;
  op->set_header(type->async ? kOpAsync : 0, clamp_priority(options.priority), 0);
  OpCold& cold = op->cold();
  cold.name = options.name;
  cold.where = where;
  try {
    fill_links(op, options);
    if (!options.context.is_cpu() || options.lane != StreamKind::compute) [[unlikely]] {
      op->device = lane_index(options.context, options.lane);
    }
  } catch (const std::bad_alloc&) {
    free_unsubmitted(op);
    throw_no_memory(options.name, where);
  } catch (...) {
    free_unsubmitted(op);
    throw;
  }
  if (options.bytes != 0) [[unlikely]] {
    op->flags |= kOpHasBytes;
    bytes_place(op) = options.bytes;
    bytes_pushed_.fetch_add(options.bytes, std::memory_order_relaxed);
  }
  return op;
}

void EngineImpl::abandon_push(Op* op) noexcept {
  if (op->flags & kOpHasBytes) bytes_pushed_.fetch_sub(bytes_of(op), std::memory_order_relaxed);
  free_unsubmitted(op);
}

void EngineImpl::end_push(Op* op) {
  if (tls.recording != nullptr && tls.recording_engine == this && op->device != kInternalLane) [[unlikely]] {
    tls.recording->add(op);
    return;
  }
  submit(op);
  if (inline_mode_ && !tls.burst) [[unlikely]]
    run_inline(options_.mode == EngineMode::naive, true);
}

void EngineImpl::submit(Op* op) {
  const bool internal = op->device == kInternalLane;  // deleting never waits
  if (!op->ordinary() && hurries(op)) [[unlikely]] {
    // Who has a batch, or older operations in front of it, is to look at the ring first. See drain().
    hurried_.fetch_add(1, std::memory_order_relaxed);
    attention_.fetch_add(1, std::memory_order_relaxed);
  }
  const uint64_t ticket = ring_.try_push(op);
  if (ticket == SubmitRing<Op>::kFull) [[unlikely]] {
    submit_slowly(op, internal);
  } else if ((ticket & 63) == 0 || bytes_pushed_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    if (!internal) throttle(ticket);
  }
  wake_after_submit();
}

void EngineImpl::wake_after_submit() {
  // The ring's swap and these loads are sequentially consistent, as are a leaving worker's decrement and its
  // last look at the ring: one of the two sees the other.
  if (active_.load(std::memory_order_seq_cst) == 0) [[unlikely]] {
    if (inline_mode_ || paused_hint_.load(std::memory_order_relaxed)) return;
    if (!single_) {
      start_worker();
    } else if (!monitor_awake_.load(std::memory_order_seq_cst)) {
      // On the only processor a worker gains nothing as long as this thread pushes or waits, and calling it
      // costs fifty times an operation. The monitor calls it if this thread does neither.
      start_monitor();
    }
  } else if (searching_.load(std::memory_order_relaxed) == 0 && more_workers_wanted()) [[unlikely]] {
    start_worker();
  }
}

void EngineImpl::submit_slowly(Op* op, bool internal) {
  // Workers empty the ring as long as they pass by. If they do not (all are in long operations, or the
  // engine is paused), the pusher does it.
  uint64_t seen = ring_.head();
  for (int turn = 0;; ++turn) {
    if (ring_.try_push(op) != SubmitRing<Op>::kFull) break;
    const uint64_t head = ring_.head();
    if (head != seen && !inline_mode_) {
      seen = head;
      turn = 0;
    }
    if (turn < 32 && !inline_mode_ && (single_ || active_.load(std::memory_order_relaxed) > 0)) {
      if (active_.load(std::memory_order_relaxed) == 0) start_worker();
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

PushBurst::PushBurst(EngineImpl& engine, std::mutex& mutex) : engine_(engine), mutex_(mutex) {
  mutex_.lock();
  tls.burst = true;
}

PushBurst::~PushBurst() {
  tls.burst = false;
  mutex_.unlock();
  engine_.after_burst();
}

void EngineImpl::after_burst() {
  if (inline_mode_) run_inline(options_.mode == EngineMode::naive, true);
}

// Blocks while more than the limits is in flight and something can end. A push from inside an operation
// never blocks: what it waits for may wait for that operation.
void EngineImpl::throttle(uint64_t ticket) {
  const auto over = [&](int64_t limit) {
    return static_cast<int64_t>(ticket - ended_.load(std::memory_order_relaxed)) > limit ||
           bytes_pushed_.load(std::memory_order_relaxed) - bytes_ended_.load(std::memory_order_relaxed) >
               options_.max_bytes_in_flight;
  };
  if (!over(options_.max_ops_in_flight) || inside_operation() || inline_mode_ || tls.burst) [[likely]]
    return;
  throttle_count_.fetch_add(1, std::memory_order_relaxed);
  wake_after_submit();
  while (over(options_.max_ops_in_flight)) {
    lock_.lock();
    if (ring_.maybe_nonempty()) drain(kDrainLimit);
    const bool can_end = running_ > 0 || (!ready_.empty() && paused_ == 0) || !comm_.empty() ||
                         device_ready_ > 0 || (streams_in_use_ && streams_->outstanding());
    unlock();
    if (!can_end && !ring_.maybe_nonempty()) return;
    wake_after_submit();
    const uint32_t word = throttle_word_.load(std::memory_order_seq_cst);
    throttled_.fetch_add(1, std::memory_order_seq_cst);
    if (over(options_.max_ops_in_flight)) futex_wait(throttle_word_, word, 2'000'000);
    throttled_.fetch_sub(1, std::memory_order_relaxed);
  }
}

// A push whose links are known to be good: of a segment, which pins its variables.
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
    for (const Link& link : links) writer.add(link.var(), link.access());
    construct(op, argument);
  } catch (...) {
    free_unsubmitted(op);
    throw;
  }
  end_push(op);
}

void EngineImpl::push_internal(const OpType* type, VarBlock* var, const std::source_location& where) {
  Op* op = allocate();
  op->type = type;
  op->set_header(0, 0, kInternalLane);
  op->links = 1;
  OpCold& cold = op->cold();
  cold.name = type == &kDeleteType ? "delete_var" : "recover";
  cold.where = where;
  op->link(0).set(var, Access::update);
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
  MX_CHECK(VarPool::end_generation(v), InvalidHandle,
           "[delete_var] expected a live variable, got one that was deleted");
  push_internal(&kDeleteType, v.block, std::source_location::current());
}

void EngineImpl::recover(Var v, const std::source_location& where) {
  check_usable("recover");
  MX_CHECK(tls.recording_engine != this, InvalidState,
           "[recover] expected to be called outside of record(), got a call while recording");
  check_var(v, "recover");
  push_internal(&kRecoverType, v.block, where);
}

uint8_t EngineImpl::lane_index(Context context, StreamKind kind) {
  const size_t known = lane_count_.load(std::memory_order_acquire);
  for (size_t i = 1; i < known; ++i) {
    if (lanes_[i]->context == context && lanes_[i]->kind == kind) return static_cast<uint8_t>(i);
  }
  if (!context.is_cpu())
    get_device(context);  // throws for a device that is not there, before anything changes
  std::lock_guard guard(lanes_mutex_);
  lock_.lock();
  size_t index = 1;
  while (index < lanes_.size() && !(lanes_[index]->context == context && lanes_[index]->kind == kind))
    ++index;
  if (index == lanes_.size() && index < kInternalLane) {
    auto lane = std::make_unique<Lane>();
    lane->context = context;
    lane->kind = kind;
    lane->accelerator = !context.is_cpu();
    if (lane->accelerator) {
      if (!streams_) streams_ = std::make_unique<StreamOrder>(*this, options_.compute_streams);
      streams_in_use_ = true;
      for (auto& other : lanes_) {
        if (other->accelerator && other->context == context) lane->issuer = other->issuer;
      }
      if (lane->issuer < 0) {
        lane->issuer = static_cast<int>(issuing_.size());
        issuing_.push_back(0);
      }
    }
    special_ = true;
    lanes_.push_back(std::move(lane));
    lane_count_.store(lanes_.size(), std::memory_order_release);
  }
  lock_.unlock();
  MX_CHECK(index < kInternalLane, InvalidArgument, "[push] expected at most ", kInternalLane - 1,
           " different devices and lanes in one engine");
  return static_cast<uint8_t>(index);
}

}  // namespace mx::detail
