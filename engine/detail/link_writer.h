// EngineImpl::LinkWriter. Internal.
#pragma once

#include <cstdint>

#include "engine/detail/engine_impl.h"

namespace mx::detail {

// Appends links to an operation, in blocks of their own beyond the fourth.
class EngineImpl::LinkWriter {
 public:
  LinkWriter(EngineImpl& engine, Op* op) : engine_(engine), op_(op) {}
  /// With blocks that were taken before: for a caller that holds the lock. They are linked by Op::next();
  /// what is not needed stays.
  LinkWriter(EngineImpl& engine, Op* op, Op*& blocks) : engine_(engine), op_(op), blocks_(&blocks) {}

  /// How many blocks an operation of so many links needs.
  static size_t blocks_for(size_t links) {
    return links <= kInlineLinks ? 0 : (links - kInlineLinks + kLinksPerExt - 1) / kLinksPerExt;
  }

  /// `generation`: of the handle, if the variable may be deleted before the operation is queued.
  void add(VarBlock* var, Access access, uint64_t generation = Link::kAnyGeneration) {
    Link& link = next();
    link.set(var, access);
    link.generation = generation;
  }

 private:
  Link& next() {
    if (op_->links < kInlineLinks) return op_->link(op_->links++);
    if (ext_ == nullptr || ext_->count == kLinksPerExt) {
      auto* block = reinterpret_cast<ExtBlock*>(take_block());
      block->owner = op_;
      block->count = 0;
      block->flags = kOpExt;
      block->next_block = nullptr;
      (ext_ == nullptr ? op_->cold().ext : ext_->next_block) = block;
      ext_ = block;
      op_->flags |= kOpWide;
    }
    return ext_->links[ext_->count++];
  }

  Op* take_block() {
    if (blocks_ == nullptr) return engine_.allocate();
    Op* block = *blocks_;
    *blocks_ = block->next();
    return block;
  }

  EngineImpl& engine_;
  Op* op_;
  Op** blocks_ = nullptr;
  ExtBlock* ext_ = nullptr;
};

}  // namespace mx::detail
