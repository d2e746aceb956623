// EngineImpl::LinkWriter. Internal.
#pragma once

#include <cstdint>

#include "engine/detail/engine_impl.h"

namespace mx::detail {

// Appends links to an operation. Links beyond the fourth go into ExtBlocks.
class EngineImpl::LinkWriter {
 public:
  LinkWriter(EngineImpl& engine, Op* op) : engine_(engine), op_(op) {}
  /// Takes ExtBlocks from `blocks`, a list linked by Op::next(), instead of allocating them. For a caller
  /// that holds the lock. Unused blocks stay in the list.
  LinkWriter(EngineImpl& engine, Op* op, Op*& blocks) : engine_(engine), op_(op), blocks_(&blocks) {}

  /// Returns the number of ExtBlocks that an operation with this many links needs.
  static size_t blocks_for(size_t links) {
    return links <= kInlineLinks ? 0 : (links - kInlineLinks + kLinksPerExt - 1) / kLinksPerExt;
  }

  /// `generation` is that of the handle, if the variable may be deleted before the operation is queued.
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
