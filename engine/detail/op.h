// Op and VarBlock: the two records that the engine's hot path touches. Internal.
//
// An Op is 128 bytes, aligned to 128, plus 24 bytes of "cold" record kept apart, because only the pusher,
// errors and traces look at it: 152 bytes per pending operation of up to four variables.
//
//   line 0   type | pending links flags device priority epoch | link 0 | link 1 | closure[0..16)
//   line 1   closure[16..48) | link 2 | link 3
//
// so an operation of up to two variables and a 16-byte closure moves one cache line between cores. A link
// needs no pointer to its operation: its address with the low bits cleared is the operation. An operation
// of more variables chains ExtBlocks of six links each; an ExtBlock starts where an Op does and says so
// in its flags, so that masking the address still finds the way.
//
// Everything in here but the closure is written either by the pusher before it submits, or under the
// engine's lock. The closure belongs to whoever runs the operation.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <source_location>
#include <type_traits>
#include <utility>

#include "engine/run_context.h"
#include "engine/var.h"

namespace mx::detail {

struct Op;
struct Failure;
struct Hold;
struct StreamMarks;

enum class Access : uintptr_t { read = 0, write = 1, update = 2 };

/// One variable of one operation; also its place in the variable's queue.
struct Link {
  uintptr_t var_and_access = 0;  // low bits: Access, and 4 when granted
  // Next in the queue of the variable. An operation that waits in no queue (free, ready, running) uses the
  // fields of its links, also of unused ones, for other lists and trees.
  union {
    Link* next = nullptr;
    Op* next_op;
    Failure* token_failure;  // of an asynchronous operation that runs (async.cc)
    int64_t sequence;        // of a ready operation that has a priority (priority_tree.h)
    Hold* hold;              // of no operation: a segment's (hold.h)
    uint64_t generation;     // until the link is queued: of the handle that was pushed, or kAnyGeneration
  };
  static constexpr uint64_t kAnyGeneration = 0;  // the variable is pinned, or the operation ends it

  VarBlock* var() const { return reinterpret_cast<VarBlock*>(var_and_access & ~uintptr_t{7}); }
  Access access() const { return static_cast<Access>(var_and_access & 3); }
  bool exclusive() const { return (var_and_access & 3) != 0; }
  bool granted() const { return (var_and_access & 4) != 0; }
  void grant() { var_and_access |= 4; }
  /// Of an operation that is ready: does it start from the version that the variable held before? (A node of
  /// a replay is queued nowhere; its links count as granted if their value comes from outside the replay.)
  bool inherits() const { return granted() && access() != Access::write; }
  void ungrant() { var_and_access &= ~uintptr_t{4}; }
  void set(VarBlock* var, Access access) {
    var_and_access = reinterpret_cast<uintptr_t>(var) | static_cast<uintptr_t>(access);
  }
};

/// What the engine needs to know of a closure's type.
struct OpType {
  void (*run)(void* closure, const RunContext&, Completion*);  // Completion: null unless async
  void (*destroy)(Op*) noexcept;                               // null: nothing to do
  bool async;
  uint8_t copy_bytes;   // how much of the closure's place a copy of it takes; 0: it must stay where it is
  bool always = false;  // cancel() leaves it alone: it gives something back (Fn::RunsEvenWhenCancelled)
};

// kOpSkip together with kOpFailed: a variable of the operation was deleted, by a deletion that overtook its
// push. It does not run, and fails with InvalidHandle.
enum OpFlags : uint8_t {
  kOpSkip = 1,       // something it reads is poisoned
  kOpCancelled = 2,  // cancel() came before it started
  kOpFailed = 4,     // it ran and failed; the Failure lies where the closure was
  kOpExt = 8,        // this is an ExtBlock
  kOpNode = kOpExt,  // on an Op: a node of a replay, never queued at variables (segment_group.h)
  kOpWide = 16,      // it has ExtBlocks
  kOpHasBytes = 32,  // PushOptions::bytes is not 0
  kOpTaken = 64,     // in a worker's batch, behind the operation it waits for
  kOpAsync = 128,    // OpType::async, where the hot path looks anyway
};

inline constexpr size_t kInlineLinks = 4;
inline constexpr size_t kClosureBytes = 48;
inline constexpr size_t kOpBytes = 128;

struct ExtBlock;

/// The part that only the pusher, errors and traces touch.
struct OpCold {
  const char* name;
  std::source_location where;
  union {
    ExtBlock* ext;   // with kOpWide
    uint64_t bytes;  // PushOptions::bytes, with kOpHasBytes but not kOpWide: see bytes_of()
    Op* next_chain;  // of the first of a chain in the pool
  };
};
static_assert(sizeof(OpCold) == 24);

struct alignas(kOpBytes) Op {
  const OpType* type;
  uint8_t pending;  // links not yet granted; 0 with kOpWide, which counts in its first ExtBlock
  uint8_t links;    // inline links in use
  uint16_t epoch;   // of wait_all(): see epochs.h
  // From here on what hardly ever changes, because kind() reads it as one word: a word that is read right
  // after a part of it was written waits for the write to leave the processor, some 15 cycles.
  uint8_t flags;
  uint8_t device;  // index into the engine's table of device lanes; 0 is the CPU
  int16_t priority;
  Link link_a[2];
  union alignas(16) {
    unsigned char closure_bytes[kClosureBytes];
    Failure* failure_of_run;  // once the closure is destroyed, if kOpFailed
  };
  Link link_b[2];

  void* closure() { return closure_bytes; }
  Link& link(size_t i) { return i < 2 ? link_a[i] : link_b[i - 2]; }
  /// The next operation in a list of operations: free, or ready.
  Op*& next() { return link_a[0].next_op; }
  Failure*& failure() { return failure_of_run; }
  OpCold& cold();

  /// An operation of the CPU's compute lane without a priority, in nobody's batch: one test for three fields.
  bool ordinary() const { return (kind() & ~(uint32_t{0xff} & ~uint32_t{kOpTaken})) == 0; }
  /// Ordinary, without any flag, and waiting for one link: it may run right behind what holds that one.
  bool follows() const { return pending == 1 && kind() == 0; }
  /// Flags, device and priority.
  uint32_t kind() const {
    static_assert(std::endian::native == std::endian::little);
    uint32_t word;
    std::memcpy(&word, &flags, sizeof word);
    return word;
  }
  /// Sets pending, links and epoch to 0, and the rest.
  void set_header(uint8_t new_flags, int16_t new_priority, uint8_t new_device) {
    const uint64_t word = (uint64_t{new_flags} << 32) | (uint64_t{new_device} << 40) |
                          (uint64_t{static_cast<uint16_t>(new_priority)} << 48);
    std::memcpy(static_cast<void*>(&pending), &word, sizeof word);
  }
};
static_assert(offsetof(Op, flags) - offsetof(Op, pending) == 4 &&
              offsetof(Op, device) - offsetof(Op, pending) == 5 &&
              offsetof(Op, priority) - offsetof(Op, pending) == 6);
static_assert(sizeof(Op) == kOpBytes && offsetof(Op, closure_bytes) == 48 && offsetof(Op, link_b) == 96);

/// Operations and variables come from slabs aligned to their size, so that an address leads to its slab.
inline constexpr size_t kSlabBytes = 1 << 16;
/// A slab of operations: the operations, then their cold records.
inline constexpr size_t kOpsPerSlab = kSlabBytes / (kOpBytes + sizeof(OpCold));
inline constexpr size_t kColdOffset = kOpBytes * kOpsPerSlab;

inline void* slab_of(const void* address) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) & ~(uintptr_t{kSlabBytes} - 1));
}

inline OpCold& Op::cold() {
  char* slab = static_cast<char*>(slab_of(this));
  const size_t index = static_cast<size_t>(reinterpret_cast<char*>(this) - slab) / kOpBytes;
  return *reinterpret_cast<OpCold*>(slab + kColdOffset + index * sizeof(OpCold));
}

struct alignas(kOpBytes) ExtBlock {
  Op* owner;
  uint32_t pending;  // in the first block of an operation: what Op::pending is for others
  uint8_t flags;     // kOpExt, at the same offset as in Op
  uint8_t count;
  Link links[6];
  ExtBlock* next_block;
  uint64_t bytes;  // of the operation, in its first block
};
static_assert(sizeof(ExtBlock) == kOpBytes && offsetof(ExtBlock, flags) == offsetof(Op, flags));
inline constexpr size_t kLinksPerExt = 6;

/// Whoever runs an operation says so here when it failed, without the lock, while a waiter may look for what
/// the operation waits for (EngineImpl::mark_ancestors).
inline void mark_failed(Op* op) {
  std::atomic_ref<uint8_t> flags(op->flags);
  flags.store(flags.load(std::memory_order_relaxed) | kOpFailed, std::memory_order_relaxed);
}
inline uint8_t flags_of(Op* op) {
  return std::atomic_ref<uint8_t>(op->flags).load(std::memory_order_relaxed);
}

inline Op* op_of(Link* link) {
  Op* op = reinterpret_cast<Op*>(reinterpret_cast<uintptr_t>(link) & ~(uintptr_t{kOpBytes} - 1));
  if (flags_of(op) & kOpExt) [[unlikely]]
    return reinterpret_cast<ExtBlock*>(op)->owner;
  return op;
}

/// Does it wait for more than `n` of its links? (More than 0: true or false for an asynchronous one that
/// runs.)
inline bool waits_for_more_than(Op* op, uint32_t n) {
  if (flags_of(op) & kOpWide) return op->cold().ext->pending > n;
  return std::atomic_ref<uint8_t>(op->pending).load(std::memory_order_relaxed) > n;
}

/// PushOptions::bytes of the operation.
inline uint64_t& bytes_place(Op* op) {
  return op->flags & kOpWide ? op->cold().ext->bytes : op->cold().bytes;
}
inline uint64_t bytes_of(Op* op) { return op->flags & kOpHasBytes ? bytes_place(op) : 0; }

/// Calls f(Link&) for every link of the operation.
template <class F>
inline void for_each_link(Op* op, F&& f) {
  const size_t links = op->links;
  Link* link = op->link_a;
  for (size_t i = 0; i < links; link = i == 2 ? op->link_b : link + 1) {
    f(*link);
    ++i;
  }
  if (flags_of(op) & kOpWide) [[unlikely]] {
    for (ExtBlock* ext = op->cold().ext; ext != nullptr; ext = ext->next_block) {
      for (size_t i = 0; i < ext->count; ++i) f(ext->links[i]);
    }
  }
}

/// Calls f(Op*) for every ExtBlock of the operation, as the place in the pool that it is; f may use it again.
template <class F>
inline void for_each_ext_block(Op* op, F&& f) {
  for (ExtBlock* ext = op->flags & kOpWide ? op->cold().ext : nullptr; ext != nullptr;) {
    ExtBlock* next = ext->next_block;
    f(reinterpret_cast<Op*>(ext));
    ext = next;
  }
}

/// Puts the operation and its ExtBlocks in front of a chain for the pool.
inline void prepend_blocks(Op* op, Op*& chain) {
  const auto put = [&](Op* block) {
    block->next() = chain;
    chain = block;
  };
  for_each_ext_block(op, put);
  put(op);
}

enum VarFlags : uint8_t {
  kVarWriting = 1,      // a writer or updater has been granted
  kVarRecoverable = 2,  // poisoned, but only by skipped updates: the memory holds the last good value
  kVarWatched = 4,      // some thread waits for it
  kVarDeleted = 8,      // delete_var() has been pushed
  kVarKept = 16,        // kVarWriting, for a segment between and during its replays (hold.h)
  kVarLost = 32,        // the same, until its replay has ended
  kVarOfSegment = 64,   // the variable that every replay of a segment writes
  kVarPinned = 128,     // by segments: VarPool::pins_of() is not 0
};

/// A variable: one cache line, read and written under the engine's lock only (but for the generation, which
/// lives in the slab's header: var_pool.h).
struct alignas(64) VarBlock {
  Link* head = nullptr;  // first of those that wait
  Link* tail = nullptr;
  uint32_t readers = 0;  // granted and not completed
  uint8_t flags = 0;
  uint32_t mark = 0;             // of the latest walk that passed here (wait.cc)
  uint32_t writes_linked = 0;    // writes and updates ever queued; wraps
  uint32_t writes_done = 0;      // of these, ended
  uint32_t generation = 1;       // of the handles that are alive at this point of the program's order
  Failure* failure = nullptr;    // poisoned: the root cause
  StreamMarks* marks = nullptr;  // what streams still do with it (stream_order.h)
  union {
    Link* holder = nullptr;  // the writer or updater that was granted last
    VarBlock* next_dead;     // the next block that is being returned to the pool
  };

  bool writing() const { return (flags & kVarWriting) != 0; }
};
static_assert(sizeof(VarBlock) == 64);

extern const OpType kDeleteType;
extern const OpType kRecoverType;
extern const OpType kReplayGroupType;

template <class Fn>
inline constexpr bool fits_inline = sizeof(Fn) <= kClosureBytes &&
                                    alignof(Fn) <= 16 && std::is_nothrow_destructible_v<Fn>;

/// PushOptions::priority as Op::priority.
inline int16_t clamp_priority(int priority) {
  return static_cast<int16_t>(priority < -32768 ? -32768 : priority > 32767 ? 32767 : priority);
}

/// A variable of the operation was deleted before it: see OpFlags. It fails instead of running.
inline void mark_stale(Op* op) { op->flags |= kOpSkip | kOpFailed; }
inline bool is_stale(const Op* op) { return (op->flags & (kOpSkip | kOpFailed)) == (kOpSkip | kOpFailed); }

[[noreturn]] void throw_null_function(const char* name, const std::source_location& where);
[[noreturn]] void throw_no_memory(const char* name, const std::source_location& where);

template <class Fn>
Fn& closure_at(void* closure) {
  if constexpr (fits_inline<Fn>) {
    return *std::launder(static_cast<Fn*>(closure));
  } else {
    return **static_cast<Fn**>(closure);
  }
}

template <class Fn, class F>
void construct_closure(Op* op, F&& fn) {
  if constexpr (fits_inline<Fn>) {
    ::new (op->closure()) Fn(std::forward<F>(fn));
  } else {
    *reinterpret_cast<Fn**>(op->closure()) = new Fn(std::forward<F>(fn));
  }
}

template <class Fn, bool kAsync>
void run_closure(void* closure, const RunContext& context, [[maybe_unused]] Completion* completion) {
  Fn& fn = closure_at<Fn>(closure);
  if constexpr (kAsync) {
    fn(context, std::move(*completion));
  } else if constexpr (std::is_invocable_v<Fn&, RunContext>) {
    fn(context);
  } else {
    fn();
  }
}

template <class Fn>
void destroy_closure(Op* op) noexcept {
  if constexpr (fits_inline<Fn>) {
    closure_at<Fn>(op->closure()).~Fn();
  } else {
    delete *reinterpret_cast<Fn**>(op->closure());
  }
}

/// Does Fn say so, with a member type RunsEvenWhenCancelled?
template <class Fn, class = void>
inline constexpr bool kRunsWhenCancelled = false;
template <class Fn>
inline constexpr bool kRunsWhenCancelled<Fn, std::void_t<typename Fn::RunsEvenWhenCancelled>> = true;

template <class Fn, bool kAsync>
inline constexpr OpType kOpType = {
    &run_closure<Fn, kAsync>,
    fits_inline<Fn>&& std::is_trivially_destructible_v<Fn> ? nullptr : &destroy_closure<Fn>, kAsync,
    !fits_inline<Fn>                   ? uint8_t{sizeof(Fn*)}
    : std::is_trivially_copyable_v<Fn> ? static_cast<uint8_t>(sizeof(Fn))
                                       : uint8_t{0},
    kRunsWhenCancelled<Fn>};

inline void destroy_function(Op* op) noexcept {
  if (op->type->destroy != nullptr) op->type->destroy(op);
}

}  // namespace mx::detail
