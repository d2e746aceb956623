// OperatorNode: the node of an operator call on recorded arrays. Internal.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "executor/autograd/node.h"
#include "executor/autograd/saved_value_hooks.h"
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
  bool returns_fresh_arrays() const override { return returns_fresh_arrays_; }

 private:
  OperatorNode(const Operator& op, const Attrs& attrs, std::span<ArrayImpl* const> inputs,
               std::span<ArrayImpl* const> outputs, std::source_location where);
  ~OperatorNode() override = default;
  void free() noexcept override;

  bool saves_input(const GradientUses& uses, size_t i) const;
  /// Whether saved_[i] holds a value that the gradient reads, rather than a shape and a type only.
  bool saves(const GradientUses& uses, size_t i) const {
    return i < inputs_ ? saves_input(uses, i) : has_bit(uses.outputs, i - inputs_);
  }
  void save(size_t i, const ArrayImpl& value);
  void get_saved(const GradientUses& uses, bool keep, NDArray* values, std::vector<PackedValue>& packed);
  void put_back(const GradientUses& uses, NDArray* values, std::vector<PackedValue>& packed) noexcept;
  void check_unchanged(size_t i, const ArrayImpl& value) const;
  std::string name_of(size_t i) const;
  std::string place_of_call() const;

  static constexpr size_t kInline = 3;
  struct More {
    std::vector<Edge> edges;
    std::vector<SavedValue> saved;
    /// Empty, or one per entry of saved_: the values that SavedValueHooks keep. Their entries of saved_ have
    /// only the shape and the type.
    std::vector<PackedValue> packed;
  };

  const Operator& op_;
  Attrs attrs_;
  std::source_location where_;
  uint32_t inputs_, outputs_;
  bool saves_values_ = false;  // set by the constructor
  bool released_ = false;      // a call of back() has taken the values; guarded by saved_locked_
  bool returns_fresh_arrays_;
  Edge* edges_;
  // Inputs, then outputs. An entry holds the value if the gradient reads it, otherwise only its shape and
  // type (version 0). It is empty if the array has the shape and type of output 0 and that is the only
  // output. The values are guarded by saved_locked_; shapes and types never change.
  SavedValue* saved_;
  Edge few_edges_[kInline];
  SavedValue few_saved_[kInline + 1];
  std::unique_ptr<More> more_;
};

/// Hooks of operators/operator.h.
void record_call(const Operator& op, const Attrs& attrs, std::span<ArrayImpl* const> inputs,
                 std::span<ArrayImpl* const> outputs, std::source_location where);
void check_update(const Operator& op, std::span<ArrayImpl* const> inputs);

}  // namespace mx::detail
