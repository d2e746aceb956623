// DependencyState: which operations wait for which. Internal; plain data, used under the engine's lock.
//
// Each variable has a first-come-first-served queue of links. At any time either any number of readers or
// one writer (or updater) has been *granted*. An operation is ready if all its links are granted. Completing
// an operation releases its grants and grants the next links in the queue: one writer, or all readers up to
// the next writer. Operations are linked one after another, each with all its links at once, so no cycle of
// waiting operations can form.
//
// A version of a variable is poisoned if the operation that should have made it has failed. A link that
// reads or updates a poisoned version marks its operation to be skipped. The version cannot change before
// that operation completes, because the link has been granted.
//
// The queues have the semantics of Apache MXNet's threaded engine (Chen et al. 2015).
#pragma once

#include <cstdint>

#include "engine/base/check.h"
#include "engine/detail/failure.h"
#include "engine/detail/op.h"

namespace mx::detail {

/// How an operation ended.
enum class Outcome : uint8_t {
  done,
  failed,   // it ran and failed: its values are undefined
  skipped,  // it never ran: what it updates keeps its old value
};

/// Sink: the functions of the owner that DependencyState calls. It calls them in the middle of a change:
///   void ready(Op*, bool released)   every link of the operation has been granted; `released`: because
///                                    other operations have ended, not at once
///   void written(VarBlock*)       a watched variable has a new version
/// and, if variables can be deleted while other threads push:
///   void deleted_before(Op*, Link&)   an earlier operation has ended the link's handle: the sink must set
///                                     another variable
/// and, if there are segments that keep variables (hold.h):
///   void give_up(VarBlock*)       an operation needs a variable that a segment keeps
///   void replayed(VarBlock*, Outcome, Failure*)   a segment's own variable has a new version
template <class Sink>
class DependencyState {
 public:
  explicit DependencyState(Sink& sink) : sink_(sink) {}

  /// Queues the operation at all its variables. The order of the calls is the push order.
  void link(Op* op) {
    uint32_t waiting = 0;
    const bool wide = (op->flags & kOpWide) != 0;
    for_each_link(op, [&](Link& link) { waiting += !enqueue(op, link); });
    if (wide) [[unlikely]] {
      op->cold().ext->pending = waiting;
    } else {
      op->pending = static_cast<uint8_t>(waiting);
    }
    if (waiting == 0) sink_.ready(op, false);
  }

  /// Releases the grants of an operation that has ended. `failure` is null for Outcome::done.
  void complete(Op* op, Outcome outcome, Failure* failure) {
    for_each_link(op, [&](Link& link) {
      VarBlock* var = link.var();
      if (!link.exclusive()) {
        if (--var->readers == 0 && var->head != nullptr) grant_next(var);
        return;
      }
      if (outcome != Outcome::done || var->failure != nullptr) [[unlikely]] {
        settle(var, link.access(), outcome, failure);
      }
      var->flags &= static_cast<uint8_t>(~kVarWriting);
      ++var->writes_done;
      if (var->flags & (kVarWatched | kVarOfSegment)) [[unlikely]] {
        if (var->flags & kVarWatched) sink_.written(var);
        if constexpr (requires { sink_.replayed(var, outcome, failure); }) {
          if (var->flags & kVarOfSegment) sink_.replayed(var, outcome, failure);
        }
      }
      if (var->head != nullptr) grant_next(var);
    });
  }

  /// Returns true if a segment may keep the variable: no operation has been granted it or waits for it, and
  /// it is not poisoned.
  static bool may_keep(const VarBlock* var) {
    return var->head == nullptr && !var->writing() && var->readers == 0 && var->failure == nullptr;
  }
  /// Makes the segment keep the link's variable. Precondition: may_keep().
  static void keep(Link& link) {
    VarBlock* var = link.var();
    var->flags |= kVarWriting | kVarKept;
    var->holder = &link;
    link.grant();
  }
  /// Ends keep(). Precondition: no operation waits for the variable.
  static void stop_keeping(Link& link) {
    link.var()->flags &= static_cast<uint8_t>(~(kVarWriting | kVarKept));
    link.ungrant();
  }
  /// Called when an operation needs a kept variable while a replay is pending. From now on the grant counts
  /// as a write by that replay.
  static void lose(Link& link) {
    VarBlock* var = link.var();
    var->flags = static_cast<uint8_t>((var->flags & ~kVarKept) | kVarLost);
    ++var->writes_linked;
  }
  /// Releases a variable given to lose(), when that replay has ended.
  void return_lost(Link& link) {
    VarBlock* var = link.var();
    link.ungrant();
    var->flags &= static_cast<uint8_t>(~(kVarWriting | kVarLost));
    ++var->writes_done;
    if (var->flags & kVarWatched) [[unlikely]]
      sink_.written(var);
    if (var->head != nullptr) grant_next(var);
  }
  /// Poisons or heals the version of a kept variable as the end of a replay requires.
  static void settle_kept(Link& link, Outcome outcome, Failure* failure) {
    if (outcome != Outcome::done || link.var()->failure != nullptr)
      settle(link.var(), link.access(), outcome, failure);
  }

  /// Returns the failure of the first poisoned version that the operation reads or updates, or null.
  static Failure* cause_of(Op* op) {
    Failure* cause = nullptr;
    for_each_link(op, [&](Link& link) {
      if (cause == nullptr && link.inherits()) cause = link.var()->failure;
    });
    return cause;
  }

  /// Poisons the variable's version with the failure; with null, heals it.
  static void set_failure(VarBlock* var, Failure* failure, bool recoverable) {
    if (failure != nullptr) failure->retain();
    if (var->failure != nullptr) var->failure->release_later();
    var->failure = failure;
    var->flags =
        static_cast<uint8_t>(recoverable ? var->flags | kVarRecoverable : var->flags & ~kVarRecoverable);
  }

 private:
  // Returns true if the link is granted at once.
  bool enqueue(Op* op, Link& link) {
    if constexpr (requires { sink_.deleted_before(op, link); }) {
      if (link.generation != link.var()->generation && link.generation != Link::kAnyGeneration) [[unlikely]]
        sink_.deleted_before(op, link);
    }
    VarBlock* var = link.var();
    if constexpr (requires { sink_.give_up(var); }) {
      if (var->flags & kVarKept) [[unlikely]]
        sink_.give_up(var);
    }
    if (link.exclusive()) {
      ++var->writes_linked;
      if (var->head == nullptr && !var->writing() && var->readers == 0) {
        var->flags |= kVarWriting;
        var->holder = &link;
        note_grant(op, link, var);
        return true;
      }
    } else if (var->head == nullptr && !var->writing()) {
      ++var->readers;
      note_grant(op, link, var);
      return true;
    }
    link.next = nullptr;
    (var->head == nullptr ? var->head : var->tail->next) = &link;
    var->tail = &link;
    return false;
  }

  void grant_next(VarBlock* var) {
    Link* link = var->head;
    if (link->exclusive()) {
      if (var->readers != 0) return;
      var->head = link->next;
      var->flags |= kVarWriting;
      var->holder = link;
      granted(link, var);
      return;
    }
    // Detach all these readers before any of them is granted, because a ready operation reuses the `next`
    // fields of its links.
    Link* run = link;
    do {
      ++var->readers;
      link = link->next;
    } while (link != nullptr && !link->exclusive());
    var->head = link;
    while (run != link) {
      Link* next = run->next;
      granted(run, var);
      run = next;
    }
  }

  void granted(Link* link, VarBlock* var) {
    Op* op = op_of(link);
    note_grant(op, *link, var);
    MX_ASSERT(waits_for_more_than(op, 0));
    if (op->flags & kOpWide) [[unlikely]] {
      if (--op->cold().ext->pending == 0) sink_.ready(op, true);
    } else if (--op->pending == 0) {
      sink_.ready(op, true);
    }
  }

  static void note_grant(Op* op, Link& link, const VarBlock* var) {
    link.grant();
    if (var->failure != nullptr && link.access() != Access::write) [[unlikely]]
      op->flags |= kOpSkip;
  }

  static void settle(VarBlock* var, Access access, Outcome outcome, Failure* failure) {
    if (outcome == Outcome::done) {
      if (access == Access::write) set_failure(var, nullptr, false);
    } else if (outcome == Outcome::failed || access == Access::write) {
      set_failure(var, failure, false);
    } else if (var->failure == nullptr) {
      set_failure(var, failure, true);
    }
  }

  Sink& sink_;
};

}  // namespace mx::detail
