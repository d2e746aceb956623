// OperatorNode: a call of an operator on recorded arrays. Internal.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <vector>

#include "executor/autograd/node.h"
#include "operators/operator.h"

namespace mx::detail {

class OperatorNode final : public Node {
 public:
  static Ref<Node> make(const Operator& op, const Attrs& attrs, std::span<ArrayImpl* const> inputs,
                        std::span<ArrayImpl* const> outputs, std::source_location where);

  const char* name() const override { return op_.name(); }
  size_t outputs() const override { return outputs_; }
  std::span<const Edge> edges() const override { return {edges_, inputs_}; }
  void back(const Step& step) override;
  bool gives_new() const override { return gives_new_; }
  void release() noexcept override;

 private:
  // A value as it was at the call, or only its shape and type, or (an input that is like output 0) nothing.
  struct Saved {
    Ref<ArrayImpl> array;
    uint32_t version = 0;
  };

  OperatorNode(const Operator& op, const Attrs& attrs, std::span<ArrayImpl* const> inputs,
               std::span<ArrayImpl* const> outputs, std::source_location where);
  ~OperatorNode() override = default;
  void free() noexcept override;

  bool saves_input(const GradientUses& uses, size_t i) const;
  NDArray value(const Saved& saved, const Edge& edge, const char* kind, size_t i, const Step& step) const;

  static constexpr size_t kInline = 3;
  struct More {
    std::vector<Edge> edges;
    std::vector<Saved> saved;
  };

  const Operator& op_;
  Attrs attrs_;
  std::source_location where_;
  uint32_t inputs_, outputs_;
  bool released_ = false;
  bool gives_new_;
  Edge* edges_;
  Saved* saved_;  // inputs, then outputs
  Edge few_edges_[kInline];
  Saved few_saved_[kInline + 1];
  std::unique_ptr<More> more_;
};

/// Hooks of operators/operator.h.
void record_call(const Operator& op, const Attrs& attrs, std::span<ArrayImpl* const> inputs,
                 std::span<ArrayImpl* const> outputs, std::source_location where);
void check_update(const Operator& op, std::span<ArrayImpl* const> inputs);

}  // namespace mx::detail
