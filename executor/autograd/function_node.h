// FunctionNode: a node whose backward function is a closure. Used for everything that is not an operator:
// views, copies, assignments, functions of users. Internal.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "executor/autograd/node.h"

namespace mx::detail {

class FunctionNode : public Node {
 public:
  using Back = std::function<void(const Step&)>;

  /// `name` must live as long as the process. `back` must not own an array that has a node (node.h).
  FunctionNode(const char* name, std::vector<Edge> edges, size_t outputs, Back back)
      : name_(name), edges_(std::move(edges)), outputs_(outputs), back_(std::move(back)) {
    set_order();
  }
  const char* name() const override { return name_; }
  size_t outputs() const override { return outputs_; }
  std::span<const Edge> edges() const override { return edges_; }
  void back(const Step& step) override;

 protected:
  /// For nodes whose back() never takes the closure out of the node.
  const Back& closure() const { return back_; }

 private:
  const char* name_;
  std::vector<Edge> edges_;
  size_t outputs_;
  Back back_;  // empty: a call of back() has taken it; guarded by saved_locked_
};

template <class T, class... Args>
Ref<Node> make_node(Args&&... args) {
  return Ref<Node>::adopt(new T(std::forward<Args>(args)...));
}

/// Records that `output` was computed from one recorded input. `back` maps a gradient of the output to that
/// of the input.
void record_function(const char* name, const NDArray& input, const NDArray& output,
                     std::function<NDArray(const NDArray& head)> back);

/// Throws InvalidState, because another backward pass has taken the graph's saved values.
[[noreturn]] void throw_released(const char* name);

}  // namespace mx::detail
