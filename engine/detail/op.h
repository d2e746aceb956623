// Op and VarBlock: the two records that the engine's hot path touches. Internal.
//
// An Op is 128 bytes, aligned to 128. Its cold record of 24 bytes is kept apart, because only the pusher,
// errors and traces use it. Together that is 152 bytes per pending operation of up to four variables.
//
//   line 0   type | pending links flags device priority epoch | link 0 | link 1 | closure[0..16)
//   line 1   closure[16..48) | link 2 | link 3
//
// So only one cache line of an operation with up to two variables and a 16-byte closure moves between cores.
// A link needs no pointer to its operation: its address with the low bits cleared is the operation. An
// operation with more than four variables has a list of ExtBlocks with six links each. An ExtBlock has the
// size and alignment of an Op and the flag kOpExt, so op_of() finds the operation of its links, too.
//
// Everything in an Op except the closure is written either by the pusher before it submits the operation, or
// under the engine's lock. The closure belongs to the thread that runs the operation.
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

/// One variable of one operation, and its entry in the variable's queue.
struct Link {
  uintptr_t var_and_access = 0;  // low bits: Access, and 4 if granted
  // The next link in the variable's queue. An operation that is in no queue of a variable (free, ready,
  // running) uses these fields of its links, including unused links, for other lists and trees.
  union {
    Link* next = nullptr;
    Op* next_op;
    Failure* token_failure;  // in a running asynchronous operation (async.cc)
    int64_t sequence;        // in a ready operation with a priority (priority_tree.h)
    Hold* hold;              // in a link of a segment's hold, which is of no operation (hold.h)
    uint64_t generation;     // until the link is queued: of the pushed handle, or kAnyGeneration
  };
  static constexpr uint64_t kAnyGeneration = 0;  // the variable is pinned, or the operation ends it

  VarBlock* var() const { return reinterpret_cast<VarBlock*>(var_and_access & ~uintptr_t{7}); }
  Access access() const { return static_cast<Access>(var_and_access & 3); }
  bool exclusive() const { return (var_and_access & 3) != 0; }
  bool granted() const { return (var_and_access & 4) != 0; }
  void grant() { var_and_access |= 4; }
  /// Returns true if a ready operation uses the version that the variable held before it. A node of a replay
  /// is in no queue; its link counts as granted if the variable's value comes from outside the replay.
  bool inherits() const { return granted() && access() != Access::write; }
  void ungrant() { var_and_access &= ~uintptr_t{4}; }
  void set(VarBlock* var, Access access) {
    var_and_access = reinterpret_cast<uintptr_t>(var) | static_cast<uintptr_t>(access);
  }
};

/// The type of a closure, for the engine.
struct OpType {
  void (*run)(void* closure, const RunContext&, Completion*);  // Completion: null unless async
  void (*destroy)(Op*) noexcept;                               // null: nothing to do
  bool async;
  uint8_t copy_bytes;   // the bytes of the closure's place that a copy needs; 0: must not be copied
  bool always = false;  // cancel() does not skip it, because it releases something (RunsEvenWhenCancelled)
};

// kOpSkip and kOpFailed together: a variable of the operation was deleted before the operation was queued.
// The operation does not run, and fails with InvalidHandle.
enum OpFlags : uint8_t {
  kOpSkip = 1,       // a version that it reads or updates is poisoned
  kOpCancelled = 2,  // cancel() was called before it started
  kOpFailed = 4,     // it ran and failed; the Failure* is in place of the closure
  kOpExt = 8,        // this is an ExtBlock
  kOpNode = kOpExt,  // on an Op: a node of a replay, never queued at variables (segment_group.h)
  kOpWide = 16,      // it has ExtBlocks
  kOpHasBytes = 32,  // PushOptions::bytes is not 0
  kOpTaken = 64,     // in a worker's batch, after the operation that it waits for
  kOpAsync = 128,    // OpType::async, here because the hot path reads the flags anyway
};

inline constexpr size_t kInlineLinks = 4;
inline constexpr size_t kClosureBytes = 48;
inline constexpr size_t kOpBytes = 128;

struct ExtBlock;

/// The part of an operation that only the pusher, errors and traces use.
struct OpCold {
  const char* name;
  std::source_location where;
  union {
    ExtBlock* ext;   // with kOpWide
    uint64_t bytes;  // PushOptions::bytes, with kOpHasBytes but not kOpWide: see bytes_of()
    Op* next_chain;  // in the first operation of a chain in the pool
  };
};
static_assert(sizeof(OpCold) == 24);

struct alignas(kOpBytes) Op {
  const OpType* type;
  uint8_t pending;  // links not yet granted; 0 with kOpWide: then see ExtBlock::pending
  uint8_t links;    // inline links in use
  uint16_t epoch;   // of wait_all(): see epochs.h
  // These four bytes rarely change, because kind() reads them as one word: a load of a word, a part of which
  // has just been stored, waits until the store has left the store buffer, some 15 cycles.
  uint8_t flags;
  uint8_t device;  // index into the engine's table of device lanes; 0 is the CPU
  int16_t priority;
  Link link_a[2];
  union alignas(16) {
    unsigned char closure_bytes[kClosureBytes];
    Failure* failure_of_run;  // after the closure has been destroyed, with kOpFailed
  };
  Link link_b[2];

  void* closure() { return closure_bytes; }
  Link& link(size_t i) { return i < 2 ? link_a[i] : link_b[i - 2]; }
  /// The next operation in a list of free or ready operations.
  Op*& next() { return link_a[0].next_op; }
  Failure*& failure() { return failure_of_run; }
  OpCold& cold();

  /// Returns true for an operation of the CPU's compute lane that has no priority and is in no batch. One
  /// test for three fields.
  bool ordinary() const { return (kind() & ~(uint32_t{0xff} & ~uint32_t{kOpTaken})) == 0; }
  /// Returns true if the operation is ordinary, has no flag, and waits for one link: it may run right after
  /// the operation that holds that variable.
  bool follows() const { return pending == 1 && kind() == 0; }
  /// Returns flags, device and priority as one word.
  uint32_t kind() const {
    static_assert(std::endian::native == std::endian::little);
    uint32_t word;
    std::memcpy(&word, &flags, sizeof word);
    return word;
  }
  /// Sets flags, priority and device, and sets pending, links and epoch to 0.
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

/// Operations and variables are in slabs aligned to their size, so slab_of() finds the slab of an address.
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
  uint32_t pending;  // in the first block of an operation: links not yet granted
  uint8_t flags;     // kOpExt, at the same offset as in Op
  uint8_t count;
  Link links[6];
  ExtBlock* next_block;
  uint64_t bytes;  // in the first block: PushOptions::bytes of the operation
};
static_assert(sizeof(ExtBlock) == kOpBytes && offsetof(ExtBlock, flags) == offsetof(Op, flags));
inline constexpr size_t kLinksPerExt = 6;

/// Sets kOpFailed. Called without the lock by the thread that runs the operation; atomic, because a waiter
/// may read the flags at the same time (EngineImpl::mark_ancestors).
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

/// Returns true if the operation waits for more than `n` of its links. For a running asynchronous operation,
/// which uses `pending` otherwise (async.cc), the result is arbitrary.
inline bool waits_for_more_than(Op* op, uint32_t n) {
  if (flags_of(op) & kOpWide) return op->cold().ext->pending > n;
  return std::atomic_ref<uint8_t>(op->pending).load(std::memory_order_relaxed) > n;
}

/// The place of PushOptions::bytes.
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

/// Calls f(Op*) for every ExtBlock of the operation, cast to the pool's Op. f may reuse the block.
template <class F>
inline void for_each_ext_block(Op* op, F&& f) {
  for (ExtBlock* ext = op->flags & kOpWide ? op->cold().ext : nullptr; ext != nullptr;) {
    ExtBlock* next = ext->next_block;
    f(reinterpret_cast<Op*>(ext));
    ext = next;
  }
}

/// Prepends the operation and its ExtBlocks to a chain for the pool.
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
  kVarWatched = 4,      // a thread waits for it
  kVarDeleted = 8,      // delete_var() has taken effect
  kVarKept = 16,        // kVarWriting, because a segment keeps it between and during its replays (hold.h)
  kVarLost = 32,        // kVarWriting, because it was kept and a pending replay still uses it
  kVarOfSegment = 64,   // the segment's own variable, which each of its replays writes
  kVarPinned = 128,     // pinned by segments: VarPool::pins_of() is not 0
};

/// A variable: one cache line, read and written only under the engine's lock. The generation that pushers
/// read is in the slab's header (pools.h).
struct alignas(64) VarBlock {
  Link* head = nullptr;  // the first waiting link
  Link* tail = nullptr;
  uint32_t readers = 0;  // granted and not completed
  uint8_t flags = 0;
  uint32_t mark = 0;             // the number of the latest walk that passed here (wait.cc)
  uint32_t writes_linked = 0;    // writes and updates ever queued; wraps
  uint32_t writes_done = 0;      // of these, ended
  uint32_t generation = 1;       // of the handles that are valid for the operation being linked
  Failure* failure = nullptr;    // the root cause, if poisoned
  StreamMarks* marks = nullptr;  // the variable's accesses still in flight on streams (stream_order.h)
  union {
    Link* holder = nullptr;  // the writer or updater that was granted last
    VarBlock* next_dead;     // in a list of blocks to be returned to the pool
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

/// Clamps PushOptions::priority to the range of Op::priority.
inline int16_t clamp_priority(int priority) {
  return static_cast<int16_t>(priority < -32768 ? -32768 : priority > 32767 ? 32767 : priority);
}

/// Marks an operation one of whose variables was deleted before it was queued: it fails instead of running.
/// See OpFlags.
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

/// True if Fn has a member type RunsEvenWhenCancelled.
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
