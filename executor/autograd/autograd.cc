#include "executor/autograd/autograd.h"

#include "engine/base/check.h"
#include "executor/autograd/backward.h"
#include "executor/autograd/function_node.h"
#include "executor/autograd/grad_cell.h"
#include "executor/autograd/operator_node.h"
#include "executor/autograd/view_node.h"
#include "ndarray/detail/place.h"
#include "ndarray/hooks.h"

namespace mx {

using detail::ArrayImpl;
using detail::Edge;
using detail::GradCell;

namespace {

void hook_requires_grad(const NDArray& array, GradReq req) {
  ArrayImpl& impl = array.impl();
  MX_CHECK(is_floating(impl.dtype), InvalidArgument,
           "[requires_grad_] expected an array of a floating-point type, got one of ", impl.dtype);
  if (const Edge edge = detail::edge_of(impl); !edge) {
    const auto cell = std::make_shared<GradCell>(impl, req);
    const auto leaf = detail::make_node<detail::Leaf>();
    static_cast<detail::Leaf&>(*leaf).set_array(impl, cell);
    detail::set_cell(impl, {leaf, 0}, cell);
  } else if (edge.node->leaf()) {
    if (const auto cell = detail::cell_of(impl)) cell->set_req(req);
  }
}

bool hook_is_leaf(const NDArray& array) {
  const Edge edge = detail::edge_of(array.impl());
  return edge && edge.node->leaf();
}

NDArray hook_grad(const NDArray& array) {
  const auto cell = detail::cell_of(array.impl());
  return cell != nullptr ? cell->grad() : NDArray();
}

void hook_set_grad(const NDArray& array, const NDArray& grad) {
  MX_CHECK(array.requires_grad() && hook_is_leaf(array), InvalidState,
           "[set_grad] expected an array with requires_grad_(), got one without, of shape ", array.shape());
  if (const auto cell = detail::cell_of(array.impl())) cell->set_grad(grad);
}

void hook_retain_grad(const NDArray& array) {
  const Edge edge = detail::edge_of(array.impl());
  MX_CHECK(edge, InvalidState, "[retain_grad] expected a recorded array, got one of shape ", array.shape(),
           " for which nothing was recorded");
  if (detail::cell_of(array.impl()) != nullptr) return;
  const auto cell = std::make_shared<GradCell>(array.impl(), GradReq::add);
  edge.node->attach({.output = edge.output, .cell = cell});
  detail::set_cell(array.impl(), edge, cell);
}

HookHandle hook_add_hook(const NDArray& array, GradHook hook) {
  MX_CHECK(hook, InvalidArgument, "[add_grad_hook] expected a function, got an empty one");
  const Edge edge = detail::edge_of(array.impl());
  MX_CHECK(edge, InvalidState, "[add_grad_hook] expected a recorded array, got one of shape ", array.shape(),
           " for which nothing was recorded");
  return edge.node->attach({.output = edge.output, .hook = std::move(hook)});
}

// The node of a copy, possibly to another type or device. It saves no values, so any number of backward
// passes may go through it: an Autocast scope uses one conversion of a parameter in all of them.
class CopyNode final : public detail::Node {
 public:
  CopyNode(Edge source, DType dtype, Context context)
      : source_(std::move(source)), dtype_(dtype), context_(context) {
    set_order();
  }
  const char* name() const override { return "copy"; }
  std::span<const Edge> edges() const override { return {&source_, 1}; }
  void back(const detail::Step& step) override {
    if (step.wanted[0] != 0) step.results[0] = step.heads[0].to(dtype_).to(context_);
  }
  bool returns_fresh_arrays() const override { return true; }

 private:
  const Edge source_;
  const DType dtype_;
  const Context context_;
};

void hook_copied(ArrayImpl& source, ArrayImpl& copy) {
  if (!is_floating(copy.dtype)) return;
  detail::set_edge(copy, detail::make_node<CopyNode>(detail::edge_of(source), source.dtype, source.context()),
                   0);
}

void hook_backward(const NDArray& array, const NDArray& head, const BackwardOptions& options) {
  detail::go_back({&array, 1}, {&head, 1}, options);
}

}  // namespace

void backward(const std::vector<NDArray>& outputs, const std::vector<NDArray>& heads,
              const BackwardOptions& options, std::source_location where) try {
  detail::go_back(outputs, heads, options);
} catch (const Error&) {
  detail::rethrow_at(where);
}

std::vector<NDArray> gradients(const std::vector<NDArray>& outputs, const std::vector<NDArray>& inputs,
                               const GradientOptions& options, std::source_location where) try {
  std::vector<NDArray> found =
      detail::gradients_of(outputs, inputs, options.heads,
                           {.retain_graph = options.retain_graph, .create_graph = options.create_graph});
  for (size_t i = 0; i < found.size() && !options.allow_unused; ++i)
    MX_CHECK(found[i].defined(), InvalidState,
             "[gradients] expected inputs that the outputs depend on, got input ", i, " of shape ",
             inputs[i].shape(), ", which is not used; set allow_unused if this is intended");
  return found;
} catch (const Error&) {
  detail::rethrow_at(where);
}

namespace {

class ClosureFunction final : public Function {
 public:
  using Map = std::function<std::vector<NDArray>(std::span<const NDArray>)>;
  ClosureFunction(const Map& forward, Map back) : forward_(forward), back_(std::move(back)) {}
  std::vector<NDArray> forward(std::span<const NDArray> inputs) override { return forward_(inputs); }
  std::vector<NDArray> backward(std::span<const NDArray> heads) override { return back_(heads); }

 private:
  Map forward_, back_;
};

}  // namespace

std::vector<NDArray> apply(const FunctionInputs& inputs,
                           const std::function<std::vector<NDArray>(std::span<const NDArray>)>& forward,
                           std::function<std::vector<NDArray>(std::span<const NDArray>)> back) try {
  MX_CHECK(forward && back, InvalidArgument, "[apply] expected two functions, got an empty one");
  return detail::apply_function(std::make_shared<ClosureFunction>(forward, std::move(back)), inputs.arrays,
                                inputs.where, "apply");
} catch (const Error&) {
  detail::rethrow_at(inputs.where);
}

bool detail::install_autograd() {
  static const bool once = [] {
    Hooks& table = hooks();
    table.viewed = record_view;
    table.copied = hook_copied;
    table.assigning = check_assignable;
    table.assigned = record_assignment;
    table.requires_grad = hook_requires_grad;
    table.is_leaf = hook_is_leaf;
    table.grad = hook_grad;
    table.set_grad = hook_set_grad;
    table.retain_grad = hook_retain_grad;
    table.add_hook = hook_add_hook;
    table.backward = hook_backward;
    OperatorHooks& operators = operator_hooks();
    operators.record = record_call;
    operators.updating = check_update;
    return true;
  }();
  return once;
}

}  // namespace mx
