// Bulk: what a thread has pushed and not yet submitted. Internal; of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/detail/engine_impl.h"
#include "engine/detail/op.h"

namespace mx::detail {

class Bulk {
 public:
  /// From here to end() it gets what this thread pushes to the engine.
  void begin(EngineImpl& engine, size_t max_ops);
  void end() noexcept;

  /// False: the operation is to be submitted by itself, now.
  bool add(Op* op);
  void flush() noexcept;

 private:
  struct List {  // through Op::next()
    Op* head = nullptr;
    Op* tail = nullptr;
  };
  static void append(List& list, Op* op);
  bool note_links(Op* op);
  size_t slot_of(const VarBlock* var) const;
  void grow(size_t wanted);
  void submit_all(Op* ops, size_t count, uint64_t bytes) noexcept;

  EngineImpl* engine_ = nullptr;
  size_t max_ops_ = 0;
  Op* running_ = nullptr;  // the operation that the scope is in
  const SegmentImpl* segment_ = nullptr;
  Bulk* outer_ = nullptr;
  EngineImpl* outer_engine_ = nullptr;

  List ops_;
  size_t count_ = 0;
  uint64_t bytes_ = 0;
  List deleted_;  // variables whose deletion comes behind ops_
  size_t deletions_ = 0;

  // The union of what the operations touch, and where in it a variable is: a hash table with open addressing
  // of places in links_, counted from 1. All keep their memory.
  std::vector<Link> links_;
  std::vector<uint32_t> table_;
  std::vector<uint32_t> slots_;  // in use; one per link
};

}  // namespace mx::detail
