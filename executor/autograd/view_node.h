// Views of recorded arrays, and assignments to them. Internal.
//
// A view is known by its place in the memory of its root (ArrayImpl::root): shapes, strides and offsets of
// both. From that follows how a gradient of the view spreads over the root and how one of the root is picked
// for the view, whatever views lie between.
//
// Only the root has a node of its own. The node of a view is made when it is needed, from the root's node of
// that time, and is valid as long as the root keeps that node (edge_of). So a view always has the gradient of
// what it shows now, whatever happened to the root since the view was taken:
//
//   y = x * 2        y: mul
//   v = y[0]         v: nothing yet
//   v * 3            v: view of mul
//   y.fill_(7)       y: nothing              v is not recorded any more
//   y.copy_from(w)   y: assign               v * 3 makes v: view of assign
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

/// The gradient of the root: that of the view in its place, zeros elsewhere, sums where elements of the view
/// share memory.
NDArray spread(const NDArray& head, const std::shared_ptr<const ViewPlace>& place);
/// The elements of an array like the root that the view would show; a view of it where that is possible.
NDArray pick(const NDArray& x, const std::shared_ptr<const ViewPlace>& place);

class ViewNode final : public FunctionNode {
 public:
  ViewNode(Edge root, std::shared_ptr<const ViewPlace> place);
  /// Is it the view's node as long as the root's node is `root`?
  bool shows(const Edge& root) const {
    return edges()[0].node.get() == root.node.get() && edges()[0].output == root.output;
  }
  void release() noexcept override {}  // it keeps shapes only
};

/// The node of `view` while the node of `root` is `edge`.
Ref<Node> make_view_node(const Edge& edge, const ArrayImpl& root, const ArrayImpl& view);

/// Hooks of ndarray/hooks.h.
void record_view(ArrayImpl& base, ArrayImpl& view);
void check_assignable(ArrayImpl& target, const char* op);
void record_assignment(ArrayImpl& target, ArrayImpl* source);

}  // namespace mx::detail
