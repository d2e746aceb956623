#include "engine/segment.h"

#include <algorithm>
#include <unordered_map>

#include "engine/base/clock.h"
#include "engine/detail/engine_impl.h"
#include "engine/detail/segment_impl.h"
#include "engine/detail/segment_run.h"

namespace mx {
namespace detail {

namespace {

// A replay as the engine sees it.
struct ReplayFunction {
  std::shared_ptr<SegmentImpl> segment;
  void operator()(RunContext, Completion done) const { SegmentRun::start(segment, std::move(done)); }
};

// One recorded operation pushed by itself.
struct NodeFunction {
  std::shared_ptr<SegmentImpl> segment;
  Op* node;
  void operator()(RunContext context) const { node->type->run(node, context, nullptr); }
};
struct AsyncNodeFunction {
  std::shared_ptr<SegmentImpl> segment;
  Op* node;
  void operator()(RunContext context, Completion done) const {
    node->type->run(node, context, &done);
  }
};

template <class Fn>
void construct_in(Op* op, void* argument) {
  construct_closure<Fn>(op, std::move(*static_cast<Fn*>(argument)));
}

}  // namespace

SegmentImpl::SegmentImpl(EngineImpl& engine) : engine_(engine), engine_id_(engine.id()) {}

SegmentImpl::~SegmentImpl() {
  for (Op* op : ops_) destroy_function(op);
  with_engine(engine_id_, [&](EngineImpl& engine) {
    if (finished_) {
      outside_.pop_back();
      engine.unpin(outside_);
      engine.delete_var(own_);
    }
    Op* chain = nullptr;
    for (Op* op : ops_) {
      op->next() = chain;
      chain = op;
    }
    engine.give_ops(chain);
  });
}

void SegmentImpl::add(Op* op) {
  std::vector<Link> links;
  try {
    for_each_link(op, [&](Link& link) { links.push_back(link); });
    ops_.reserve(ops_.size() + 1);
    links_.push_back(std::move(links));
  } catch (...) {
    destroy_function(op);
    engine_.abandon_push(op);
    throw;
  }
  // The links are copied; blocks of further links go back at once.
  if (op->flags & kOpWide) {
    Op* chain = nullptr;
    for (ExtBlock* ext = op->cold().ext; ext != nullptr;) {
      ExtBlock* next = ext->next_block;
      Op* block = reinterpret_cast<Op*>(ext);
      block->next() = chain;
      chain = block;
      ext = next;
    }
    engine_.give_ops(chain);
    op->flags &= static_cast<uint8_t>(~kOpWide);
  }
  op->links = 0;
  if (op->device != 0 || op->type->async || op->priority != 0) plain_ = false;
  ops_.push_back(op);
}

void SegmentImpl::finish() {
  struct History {
    Op* writer = nullptr;
    std::vector<Op*> readers;
    bool read_first = false;   // its old value matters: an update seen from outside
    bool written = false;
    bool touched = false;
  };
  std::unordered_map<VarBlock*, History> vars;
  std::vector<std::vector<Op*>> successors(ops_.size());
  std::vector<uint32_t> predecessors(ops_.size(), 0);
  std::unordered_map<Op*, size_t> index;
  std::vector<VarBlock*> order;
  for (size_t i = 0; i < ops_.size(); ++i) {
    index[ops_[i]] = i;
    std::vector<Op*> before;
    for (const Link& link : links_[i]) {
      History& var = vars[link.var()];
      if (!var.touched) {
        var.touched = true;
        var.read_first = link.access() != Access::write;
        order.push_back(link.var());
      }
      if (!link.exclusive()) {
        if (var.writer != nullptr) before.push_back(var.writer);
        var.readers.push_back(ops_[i]);
        continue;
      }
      var.written = true;
      if (var.readers.empty() && var.writer != nullptr) before.push_back(var.writer);
      before.insert(before.end(), var.readers.begin(), var.readers.end());
      var.readers.clear();
      var.writer = ops_[i];
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (Op* op : before) {
      if (op == ops_[i]) continue;
      successors[index[op]].push_back(ops_[i]);
      ++predecessors[i];
    }
  }
  for (VarBlock* var : order) {
    const History& history = vars[var];
    Link link;
    link.set(var, !history.written ? Access::read : history.read_first ? Access::update : Access::write);
    outside_.push_back(link);
  }
  if (plain_) {
    size_t total = 0;
    for (const auto& list : successors) total += list.size();
    edges_.reserve(total);
    for (size_t i = 0; i < ops_.size(); ++i) {
      Node* node = ::new (static_cast<void*>(ops_[i]->link_a)) Node;
      node->successors = edges_.data() + edges_.size();
      node->successor_count = static_cast<uint32_t>(successors[i].size());
      node->predecessors = predecessors[i];
      node->waiting.store(predecessors[i], std::memory_order_relaxed);
      node->index = static_cast<uint32_t>(i);
      edges_.insert(edges_.end(), successors[i].begin(), successors[i].end());
      if (predecessors[i] == 0) roots_.push_back(ops_[i]);
    }
    links_.clear();
  }
  engine_.pin(outside_);
  finished_ = true;
  own_ = engine_.new_var();
  Link own;
  own.set(own_.block, Access::update);
  outside_.push_back(own);
}

void SegmentImpl::replay(int priority) {
  engine_.check_usable("replay");
  if (ops_.empty()) return;
  if (!plain_) return replay_one_by_one(priority);
  ReplayFunction fn{shared_from_this()};
  engine_.push_links(&kOpType<ReplayFunction, true>, outside_, priority, 0, "replay", ops_[0]->cold().where,
                     &construct_in<ReplayFunction>, &fn);
}

void SegmentImpl::replay_one_by_one(int priority) {
  for (size_t i = 0; i < ops_.size(); ++i) {
    Op* op = ops_[i];
    const OpCold& cold = op->cold();
    const int own = op->priority != 0 ? op->priority : priority;
    if (op->type->async) {
      AsyncNodeFunction fn{shared_from_this(), op};
      engine_.push_links(&kOpType<AsyncNodeFunction, true>, links_[i], own, op->device, cold.name, cold.where,
                         &construct_in<AsyncNodeFunction>, &fn);
    } else {
      NodeFunction fn{shared_from_this(), op};
      engine_.push_links(&kOpType<NodeFunction, false>, links_[i], own, op->device, cold.name, cold.where,
                         &construct_in<NodeFunction>, &fn);
    }
  }
}

}  // namespace detail

void Segment::replay(int priority) {
  MX_CHECK(impl_ != nullptr, InvalidState, "[replay] expected a recorded segment, got an empty one");
  impl_->replay(priority);
}

size_t Segment::operations() const { return impl_ ? impl_->operations() : 0; }
size_t Segment::edges() const { return impl_ ? impl_->edges() : 0; }

}  // namespace mx
