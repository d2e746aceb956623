// Views of recorded arrays, and assignments to them. Internal.
//
// A view is known by its place in the memory of its root, the array that is not a view: shapes, strides and
// offsets of both. From that follows how a gradient of the view spreads over the root and how one of the root
// is picked for the view, whatever views lie between.
//
// An assignment to a view gives the root a new node; other views of the root notice when they are next used.
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
  bool operator==(const Layout&) const = default;
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
  ViewNode(Edge root, const ArrayImpl* identity, std::shared_ptr<const ViewPlace> place);
  const Edge& root() const { return edges()[0]; }
  /// The array it was made for; only to be compared.
  const ArrayImpl* identity() const { return identity_; }
  const ViewPlace& place() const { return *place_; }
  void release() noexcept override {}  // nothing that weighs

 private:
  const ArrayImpl* identity_;
  std::shared_ptr<const ViewPlace> place_;
};

/// Hooks of ndarray/hooks.h.
void record_view(ArrayImpl& base, ArrayImpl& view);
void check_assignable(ArrayImpl& target, const char* op);
void record_assignment(ArrayImpl& target, ArrayImpl* source);

/// Gives a view the node that its root's present node asks for.
void refresh_view(ArrayImpl& view);

}  // namespace mx::detail
