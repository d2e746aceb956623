// Gradients of views of recorded arrays, and of assignments to them. Internal.
//
// A view is described by its place in the memory of its base (ArrayImpl::base): the shapes, strides and
// offsets of both. These are enough to spread a gradient of the view over the base, and to pick the view's
// elements from a gradient of the base. The base of a view of a view is that view, so its hooks get what
// flows through views of it. Exceptions are a base whose elements share memory (after broadcasting, for
// example) and a row of more than 64 views: then the base is the one before, or the root of all. In what
// follows, the root is the base.
//
// Only an array that is no view has a permanent node. The node of a view is created on demand from the root's
// current node, and is valid until the root gets another node (edge_of). So the gradient of a view is always
// that of the elements that it currently shows, even if the root was changed after the view was taken:
//
//   y = x * 2        node of y: mul
//   v = y[0]         node of v: none yet
//   v * 3            node of v: view of mul
//   y.fill_(7)       node of y: none         v is not recorded any more
//   y.copy_from(w)   node of y: assign       the next v * 3 makes the node of v: view of assign
#pragma once

#include <cstdint>
#include <memory>

#include "executor/autograd/function_node.h"

namespace mx::detail {

struct Layout {
  Shape shape;
  Strides strides;
  int64_t offset;

  explicit Layout(const ArrayImpl& array)
      : shape(array.shape), strides(array.strides), offset(array.offset) {}
  bool contiguous() const;
};

struct ViewPlace {
  Layout root, view;
};

/// Returns the gradient of the root for `head`, the gradient of the view: `head` at the place of the view,
/// zeros elsewhere. If elements of the view share memory, their gradients are added.
NDArray spread(const NDArray& head, const std::shared_ptr<const ViewPlace>& place);
/// Returns the elements at the place of the view in x, an array of the root's shape; as a view of x if
/// possible.
NDArray pick(const NDArray& x, const std::shared_ptr<const ViewPlace>& place);

class ViewNode final : public FunctionNode {
 public:
  ViewNode(Edge root, std::shared_ptr<const ViewPlace> place, uint64_t scope);
  /// Returns true if this node was made for `root`, the current edge of the root array, so that it is still
  /// valid.
  bool shows(const Edge& root) const {
    return edges()[0].node.get() == root.node.get() && edges()[0].output == root.output;
  }
  bool is_view() const override { return true; }
  /// Takes nothing out of the node, which keeps only shapes: further passes may go through it.
  void back(const Step& step) override { closure()(step); }
};

/// Makes the node of `view` for the current edge of `root`.
Ref<Node> make_view_node(const Edge& edge, const ArrayImpl& root, const ArrayImpl& view);

/// Hooks of ndarray/hooks.h.
void record_view(ArrayImpl& base, ArrayImpl& view);
void check_assignable(ArrayImpl& target, const char* op);
void record_assignment(ArrayImpl& target, ArrayImpl* source);

}  // namespace mx::detail
