// EngineImpl::LinkWriter. Internal.
#pragma once

#include "engine/detail/engine_impl.h"

namespace mx::detail {

// Appends links to an operation, in blocks of their own beyond the fourth.
class EngineImpl::LinkWriter {
 public:
  LinkWriter(EngineImpl& engine, Op* op) : engine_(engine), op_(op) {}

  void add(VarBlock* var, Access access) {
    if (op_->links < kInlineLinks) {
      op_->link(op_->links++).set(var, access);
      return;
    }
    if (ext_ == nullptr || ext_->count == kLinksPerExt) {
      auto* block = reinterpret_cast<ExtBlock*>(engine_.allocate());
      block->owner = op_;
      block->count = 0;
      block->flags = kOpExt;
      block->next_block = nullptr;
      (ext_ == nullptr ? op_->cold().ext : ext_->next_block) = block;
      ext_ = block;
      op_->flags |= kOpWide;
    }
    ext_->links[ext_->count++].set(var, access);
  }

 private:
  EngineImpl& engine_;
  Op* op_;
  ExtBlock* ext_ = nullptr;
};

}  // namespace mx::detail
