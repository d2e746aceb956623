// Copies of DependencyState, each with one wrong line, to show that the checks of queue_model.h can fail.
#pragma once

#include <cstdint>

#include "engine/detail/dependency.h"

namespace mx::test::model {

enum class Mutation {
  none,                    // an unchanged copy, which must pass
  writers_ignore_readers,  // when an operation is linked
  granted_writers_ignore_readers,
  only_first_reader,  // only the first of several consecutive readers is granted
  no_next,            // completing an exclusive operation does not grant the next
  no_next_after_readers,
  lost_skip,         // a poisoned version is not noticed at the grant
  readers_overtake,  // a reader is granted although a writer waits before it
  updates_heal,      // a skipped update makes the version good
  writes_do_not_heal,
};

template <class Sink, Mutation kMutation>
class MutantDependencyState {
 public:
  explicit MutantDependencyState(Sink& sink) : sink_(sink) {}

  void link(detail::Op* op) {
    uint32_t waiting = 0;
    detail::for_each_link(op, [&](detail::Link& link) { waiting += !enqueue(op, link); });
    op->pending = static_cast<uint16_t>(waiting);
    if (waiting == 0) sink_.ready(op, false);
  }

  void complete(detail::Op* op, detail::Outcome outcome, detail::Failure* failure) {
    detail::for_each_link(op, [&](detail::Link& link) {
      detail::VarBlock* var = link.var();
      if (!link.exclusive()) {
        if (--var->readers == 0 && var->head != nullptr && !is(Mutation::no_next_after_readers))
          grant_next(var);
        return;
      }
      if (outcome != detail::Outcome::done || var->failure != nullptr)
        settle(var, link.access(), outcome, failure);
      var->flags &= static_cast<uint8_t>(~detail::kVarWriting);
      ++var->writes_done;
      if (var->head != nullptr && !is(Mutation::no_next)) grant_next(var);
    });
  }

  static detail::Failure* cause_of(detail::Op* op) { return detail::DependencyState<Sink>::cause_of(op); }

 private:
  static constexpr bool is(Mutation mutation) { return kMutation == mutation; }

  bool enqueue(detail::Op* op, detail::Link& link) {
    detail::VarBlock* var = link.var();
    if (link.exclusive()) {
      ++var->writes_linked;
      if (var->head == nullptr && !var->writing() &&
          (var->readers == 0 || is(Mutation::writers_ignore_readers))) {
        var->flags |= detail::kVarWriting;
        var->holder = &link;
        note_grant(op, link, var);
        return true;
      }
    } else if ((var->head == nullptr || is(Mutation::readers_overtake)) && !var->writing()) {
      ++var->readers;
      note_grant(op, link, var);
      return true;
    }
    link.next = nullptr;
    (var->head == nullptr ? var->head : var->tail->next) = &link;
    var->tail = &link;
    return false;
  }

  void grant_next(detail::VarBlock* var) {
    detail::Link* link = var->head;
    if (link->exclusive()) {
      if (var->readers != 0 && !is(Mutation::granted_writers_ignore_readers)) return;
      var->head = link->next;
      var->flags |= detail::kVarWriting;
      var->holder = link;
      granted(link, var);
      return;
    }
    detail::Link* run = link;
    do {
      ++var->readers;
      link = link->next;
    } while (link != nullptr && !link->exclusive() && !is(Mutation::only_first_reader));
    var->head = link;
    while (run != link) {
      detail::Link* next = run->next;
      granted(run, var);
      run = next;
    }
    // A mutant that grants writers while readers are active does so here.
    if (is(Mutation::granted_writers_ignore_readers) && var->head != nullptr) grant_next(var);
  }

  void granted(detail::Link* link, detail::VarBlock* var) {
    detail::Op* op = detail::op_of(link);
    note_grant(op, *link, var);
    if (--op->pending == 0) sink_.ready(op, true);
  }

  static void note_grant(detail::Op* op, detail::Link& link, const detail::VarBlock* var) {
    link.grant();
    if (var->failure != nullptr && link.access() != detail::Access::write && !is(Mutation::lost_skip)) {
      op->flags |= detail::kOpSkip;
    }
  }

  static void set_failure(detail::VarBlock* var, detail::Failure* failure, bool recoverable) {
    detail::DependencyState<Sink>::set_failure(var, failure, recoverable);
  }

  static void settle(detail::VarBlock* var, detail::Access access, detail::Outcome outcome,
                     detail::Failure* failure) {
    if (outcome == detail::Outcome::done) {
      if (access == detail::Access::write && !is(Mutation::writes_do_not_heal))
        set_failure(var, nullptr, false);
    } else if (outcome == detail::Outcome::failed || access == detail::Access::write) {
      set_failure(var, failure, false);
    } else if (var->failure == nullptr) {
      set_failure(var, failure, true);
    } else if (is(Mutation::updates_heal)) {
      set_failure(var, nullptr, false);
    }
  }

  Sink& sink_;
};

}  // namespace mx::test::model
