// Replays of segments that keep variables: see hold.h.
#include "engine/detail/hold.h"

#include <algorithm>

#include "engine/detail/engine_inl.h"
#include "engine/detail/link_writer.h"

namespace mx::detail {

namespace {

constexpr uint32_t kMaxPatience = 1024;

// Returns true if this replay should try to keep variables. Returns false for this replay and the next
// `patience` ones if more variables have been taken away since the last replay than are still kept. Each such
// case doubles `patience`, up to kMaxPatience; each true halves it.
bool worth_keeping(Hold& hold) {
  const size_t taken = std::exchange(hold.taken_away, 0);
  if (hold.rest > 0) {
    --hold.rest;
    return false;
  }
  if (taken > hold.kept()) {
    hold.patience = std::min(std::max(1u, 2 * hold.patience), kMaxPatience);
    hold.rest = hold.patience;
    return false;
  }
  hold.patience /= 2;
  return true;
}

}  // namespace

// Returns the place in holds_ that points to the hold of the variable `own`, or the null pointer at the end
// of its chain if there is no such hold.
Hold** EngineImpl::place_of_hold(const VarBlock* own) {
  const size_t hash = reinterpret_cast<uintptr_t>(own) / sizeof(VarBlock) * 0x9e3779b97f4a7c15 >> 56;
  Hold** place = &holds_[hash % holds_.size()];
  while (*place != nullptr && (*place)->own != own) place = &(*place)->next;
  return place;
}

Hold* EngineImpl::add_hold(std::unique_ptr<Hold> hold) noexcept {
  Hold* const added = hold.release();
  lock_.lock();
  *place_of_hold(added->own) = added;
  added->own->flags |= kVarOfSegment;
  unlock();
  return added;
}

// Links a replay immediately instead of pushing it through the ring, because the variables to link depend on
// which ones the segment keeps at this moment. Returns false if the caller has to push the replay in the
// normal way, linked to all variables; then `argument` has not been used.
bool EngineImpl::replay_keeping(Hold& hold, const OpType* type, int priority,
                                const std::source_location& where, void (*construct)(Op*, void*),
                                void* argument) {
  if (profiler_.tracking()) return false;  // its trace shows dependences by links, so all links are needed
  throttle(ring_.head());
  // The number of links is known only under the lock, but the memory for them must be allocated before the
  // lock is taken. So the loop tries again with more blocks until they suffice.
  Op* op = nullptr;
  Op* blocks = nullptr;
  size_t have = 0;
  for (size_t need = 0;;) {
    try {
      if (op == nullptr) {
        op = allocate();
        op->type = type;
        op->set_header(kOpAsync, clamp_priority(priority), 0);
        op->cold().name = "replay";
        op->cold().where = where;
      }
      for (; have < need; ++have) {
        Op* block = allocate();
        block->next() = blocks;
        blocks = block;
      }
    } catch (const std::bad_alloc&) {
      if (op != nullptr) free_unsubmitted(op);
      give_ops(blocks);
      throw_no_memory("replay", where);
    }
    lock_.lock();
    drain_to(ring_.tail());                       // earlier pushes precede the replay in program order
    if (closed_at_ != UINT64_MAX) [[unlikely]] {  // since this call began
      unlock();
      free_unsubmitted(op);
      give_ops(blocks);
      throw_shut_down("replay");
    }
    if (streams_busy_ || !worth_keeping(hold)) {
      unlock();
      free_unsubmitted(op);
      give_ops(blocks);
      return false;
    }
    size_t links = hold.reads.size() + 1;
    for (const uint32_t i : hold.missing) links += !deps_.may_keep(hold.vars[i].var());
    need = LinkWriter::blocks_for(links);
    if (need <= have) break;
    unlock();
  }
  LinkWriter writer(*this, op, blocks);
  for (const Link& link : hold.reads) writer.add(link.var(), link.access());
  for (const uint32_t i : hold.missing) {
    const Link& link = hold.vars[i];
    if (!deps_.may_keep(link.var())) writer.add(link.var(), link.access());
  }
  // Added last: links are completed in order, so replayed() is called after all other links of the replay
  // have been completed.
  writer.add(hold.own, hold.updates > 0 ? Access::update : Access::write);
  construct(op, argument);
  size_t left = 0;
  for (const uint32_t i : hold.missing) {
    Link& link = hold.vars[i];
    if (deps_.may_keep(link.var())) {
      deps_.keep(link);
      hold.updates += link.access() == Access::update;
    } else {
      hold.missing[left++] = i;
    }
  }
  hold.missing.resize(left);
  op->epoch = epochs_.open();
  epochs_.add(op->epoch);
  --ended_count_;  // it counts only operations that passed the ring: cancels the end of this one
  ++linked_directly_;
  deps_.link(op);
  if (internal_ != nullptr) settle_internal();
  unlock();
  give_ops(blocks);
  wake_after_submit();
  if (inline_mode_) run_inline(options_.mode == EngineMode::naive, true);
  return true;
}

void EngineImpl::give_up(VarBlock* var) {
  Link& link = *var->holder;
  Hold& hold = *link.hold;
  const auto index = static_cast<uint32_t>(&link - hold.vars.data());
  ++hold.taken_away;
  hold.updates -= link.access() == Access::update;
  hold.missing.push_back(index);  // never allocates: its capacity is vars.size()
  if (hold.pending()) {
    deps_.lose(link);
    hold.lost.push_back({index, hold.own->writes_linked});
  } else {
    deps_.stop_keeping(link);
  }
}

void EngineImpl::replayed(VarBlock* own, Outcome outcome, Failure* failure) {
  Hold& hold = **place_of_hold(own);
  if (outcome != Outcome::done || hold.poisoned) {
    hold.poisoned = false;
    for (Link& link : hold.vars) {
      if (!link.granted()) continue;
      deps_.settle_kept(link, outcome, failure);
      hold.poisoned |= link.var()->failure != nullptr;
    }
  }
  size_t returned = 0;
  for (; returned < hold.lost.size(); ++returned) {
    const Hold::Lost& lost = hold.lost[returned];
    if (static_cast<int32_t>(own->writes_done - lost.until) < 0) break;
    deps_.return_lost(hold.vars[lost.index]);
  }
  hold.lost.erase(hold.lost.begin(), hold.lost.begin() + static_cast<std::ptrdiff_t>(returned));
  if (hold.pending()) return;
  if (hold.poisoned) keep_nothing(hold);
  if (hold.over) remove_hold(hold);
}

// Precondition: no replay is pending, so no operation waits for a kept variable.
void EngineImpl::keep_nothing(Hold& hold) {
  hold.missing.clear();
  for (uint32_t i = 0; i < hold.vars.size(); ++i) {
    if (hold.vars[i].granted()) deps_.stop_keeping(hold.vars[i]);
    hold.missing.push_back(i);
  }
  hold.updates = 0;
  hold.poisoned = false;
}

void EngineImpl::end_hold(Hold& hold) {
  lock_.lock();
  hold.over = true;
  if (!hold.pending()) remove_hold(hold);
  unlock();
}

void EngineImpl::remove_hold(Hold& hold) {
  keep_nothing(hold);
  hold.own->flags &= static_cast<uint8_t>(~kVarOfSegment);
  unpin_locked(hold.reads);
  unpin_locked(hold.vars);
  *place_of_hold(hold.own) = hold.next;
  hold.next = after_.holds;
  after_.holds = &hold;
}

}  // namespace mx::detail
