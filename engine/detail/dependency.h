// DependencyState: who waits for whom. Internal; plain data, used under the engine's lock.
//
// Each variable has a first-come-first-served queue of links. At any time either any number of readers or
// one writer (or updater) has been *granted*; an operation whose links are all granted is ready. Completing
// it takes its grants back and grants the next in line: one writer, or the whole run of readers up to the
// next writer. Because operations are linked one after another, all their links at once, no cycle can form.
//
// A variable's version is poisoned by the failure of the operation that should have made it. A link that
// reads or updates a poisoned version marks its operation to be skipped; since the link has been granted,
// the version cannot change before the operation completes.
//
// Source of the queue's meaning: Apache MXNet's threaded engine (Chen et al. 2015).
#pragma once

#include <cstdint>
#include <vector>

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

/// Sink: what DependencyState tells its owner, while it is in the middle of a change:
///   void ready(Op*)               every link has been granted
///   void written(VarBlock*)       a watched variable has got a new version
/// and, if variables are deleted while others push:
///   void deleted_before(Op*, Link&)   the link's handle ended at an earlier operation: name another variable
/// and, if there are segments that keep variables (hold.h):
///   void give_up(VarBlock*)       something else wants a kept variable
///   void replayed(VarBlock*, Outcome, Failure*)   the variable of a segment has got a new version
template <class Sink>
class DependencyState {
 public:
  explicit DependencyState(Sink& sink) : sink_(sink) {}

  /// Queues the operation at all its variables; the order of calls is the order of the program.
  void link(Op* op) {
    uint32_t waiting = 0;
    const bool wide = (op->flags & kOpWide) != 0;
    for_each_link(op, [&](Link& link) { waiting += !enqueue(op, link); });
    if (wide) [[unlikely]] {
      op->cold().ext->pending = waiting;
    } else {
      op->pending = static_cast<uint8_t>(waiting);
    }
    if (waiting == 0) sink_.ready(op);
  }

  /// Takes the grants of an operation back. `failure` is null for Outcome::done.
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

  /// A segment keeps a variable: nobody has it, nobody waits for it, and it is not poisoned.
  static bool may_keep(const VarBlock* var) {
    return var->head == nullptr && !var->writing() && var->readers == 0 && var->failure == nullptr;
  }
  static void keep(Link& link) {
    VarBlock* var = link.var();
    var->flags |= kVarWriting | kVarKept;
    var->holder = &link;
    link.grant();
  }
  /// It no longer does; nobody waits.
  static void stop_keeping(Link& link) {
    link.var()->flags &= static_cast<uint8_t>(~(kVarWriting | kVarKept));
    link.ungrant();
  }
  /// A kept variable is wanted while a replay is pending: from now on it counts as a write of that.
  static void lose(Link& link) {
    VarBlock* var = link.var();
    var->flags = static_cast<uint8_t>((var->flags & ~kVarKept) | kVarLost);
    ++var->writes_linked;
  }
  /// That replay has ended.
  void return_lost(Link& link) {
    VarBlock* var = link.var();
    link.ungrant();
    var->flags &= static_cast<uint8_t>(~(kVarWriting | kVarLost));
    ++var->writes_done;
    if (var->flags & kVarWatched) [[unlikely]]
      sink_.written(var);
    if (var->head != nullptr) grant_next(var);
  }
  /// What the end of a replay does to the version of a variable that was kept for it.
  static void settle_kept(Link& link, Outcome outcome, Failure* failure) {
    if (outcome != Outcome::done || link.var()->failure != nullptr)
      settle(link.var(), link.access(), outcome, failure);
  }

  /// Why the operation is to be skipped: the first poisoned version that it reads or updates.
  static Failure* cause_of(Op* op) {
    Failure* cause = nullptr;
    for_each_link(op, [&](Link& link) {
      if (cause == nullptr && link.inherits()) cause = link.var()->failure;
    });
    return cause;
  }

  /// Poisons a version, or with null heals it.
  static void set_failure(VarBlock* var, Failure* failure, bool recoverable) {
    if (failure != nullptr) failure->retain();
    if (var->failure != nullptr) var->failure->release_later();
    var->failure = failure;
    var->flags =
        static_cast<uint8_t>(recoverable ? var->flags | kVarRecoverable : var->flags & ~kVarRecoverable);
  }

 private:
  // Is the link granted at once?
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
    // Detach the whole run of readers before any of them is granted: a grant reuses the link.
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
      if (--op->cold().ext->pending == 0) sink_.ready(op);
    } else if (--op->pending == 0) {
      sink_.ready(op);
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
