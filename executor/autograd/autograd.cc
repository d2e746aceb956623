#include "executor/autograd/autograd.h"

#include "engine/base/check.h"
#include "executor/autograd/backward.h"
#include "executor/autograd/function_node.h"
#include "executor/autograd/operator_node.h"
#include "executor/autograd/view_node.h"
#include "ndarray/hooks.h"

namespace mx {

using detail::ArrayImpl;
using detail::Edge;
using detail::Node;

namespace {

// Null: not recorded. (It belongs to the array.)
Node* node_of(const NDArray& array) { return detail::edge_of(array.impl()).node.get(); }

void hook_requires_grad(const NDArray& array, GradReq req) {
  ArrayImpl& impl = array.impl();
  MX_CHECK(is_floating(impl.dtype), InvalidArgument,
           "[requires_grad_] expected an array of floating point, got one of ", impl.dtype);
  if (Node* const node = node_of(array); node == nullptr) {
    detail::set_edge(impl, detail::make_node<detail::Leaf>(impl, req), 0);
  } else if (node->leaf()) {
    static_cast<detail::Leaf*>(node)->set_req(req);
  }
}

bool hook_is_leaf(const NDArray& array) { return node_of(array)->leaf(); }

NDArray hook_grad(const NDArray& array) {
  const Node* const node = node_of(array);
  if (node->leaf()) return static_cast<const detail::Leaf*>(node)->grad();
  return node->retained(array.impl().extension_output);
}

void hook_set_grad(const NDArray& array, const NDArray& grad) {
  MX_CHECK(array.requires_grad() && hook_is_leaf(array), InvalidState,
           "[set_grad] expected an array with requires_grad_(), got one of shape ", array.shape(),
           " without");
  static_cast<detail::Leaf*>(node_of(array))->set_grad(grad);
}

void hook_retain_grad(const NDArray& array) {
  const Edge edge = detail::edge_of(array.impl());
  MX_CHECK(edge, InvalidState, "[retain_grad] expected a recorded array, got one of shape ", array.shape(),
           " for which nothing was recorded");
  if (!edge.node->leaf()) edge.node->attach({.output = edge.output, .retains = true});
}

HookHandle hook_add_hook(const NDArray& array, GradHook hook) {
  MX_CHECK(hook, InvalidArgument, "[add_grad_hook] expected a function, got an empty one");
  const Edge edge = detail::edge_of(array.impl());
  MX_CHECK(edge, InvalidState, "[add_grad_hook] expected a recorded array, got one of shape ", array.shape(),
           " for which nothing was recorded");
  return edge.node->attach({.output = edge.output, .hook = std::move(hook)});
}

void hook_copied(ArrayImpl& source, ArrayImpl& copy) {
  if (!is_floating(copy.dtype)) return;
  const DType dtype = source.dtype;
  const Context context = source.context();
  detail::record_function("copy", NDArray(detail::Ref<ArrayImpl>(&source)),
                          NDArray(detail::Ref<ArrayImpl>(&copy)),
                          [dtype, context](const NDArray& head) { return head.to(dtype).to(context); });
}

void hook_backward(const NDArray& array, const NDArray& head, const BackwardOptions& options) {
  detail::go_back({&array, 1}, {&head, 1}, options);
}

}  // namespace

void backward(const std::vector<NDArray>& outputs, const std::vector<NDArray>& heads,
              const BackwardOptions& options) {
  detail::go_back(outputs, heads, options);
}

std::vector<NDArray> gradients(const std::vector<NDArray>& outputs, const std::vector<NDArray>& inputs,
                               const GradientOptions& options) {
  std::vector<NDArray> found =
      detail::gradients_of(outputs, inputs, options.heads,
                           {.retain_graph = options.retain_graph, .create_graph = options.create_graph});
  for (size_t i = 0; i < found.size() && !options.allow_unused; ++i)
    MX_CHECK(found[i].defined(), InvalidState,
             "[gradients] expected inputs that the outputs depend on, input ", i, " of shape ",
             inputs[i].shape(), " is not used; set allow_unused if that is meant");
  return found;
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

std::vector<NDArray> apply(const std::vector<NDArray>& inputs,
                           const std::function<std::vector<NDArray>(std::span<const NDArray>)>& forward,
                           std::function<std::vector<NDArray>(std::span<const NDArray>)> back) {
  MX_CHECK(forward && back, InvalidArgument, "[apply] expected two functions, got an empty one");
  return detail::apply_function(std::make_shared<ClosureFunction>(forward, std::move(back)), inputs);
}

std::vector<NDArray> detail::apply_function(std::shared_ptr<Function> function,
                                            std::span<const NDArray> inputs) {
  std::vector<NDArray> outputs;
  {
    NoGrad pause;
    outputs = function->forward(inputs);
  }
  std::vector<Edge> edges;
  std::vector<Ref<ArrayImpl>> shapes;
  bool any = false;
  for (const NDArray& input : inputs) {
    edges.push_back(input.impl().recorded() ? edge_of(input.impl()) : Edge{});
    shapes.push_back(shape_of(input.impl()));
    any = any || edges.back();
  }
  if (!any) return outputs;
  const auto back = [function, shapes](const Step& step) {
    const std::vector<NDArray> gradients = function->backward(step.heads);
    MX_CHECK(gradients.size() == shapes.size(), InvalidArgument, "[Function] expected ", shapes.size(),
             " gradients from backward(), one per input, got ", gradients.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      MX_CHECK(gradients[i].shape() == shapes[i]->shape, InvalidArgument, "[Function] expected gradient ", i,
               " of backward() in the input's shape ", shapes[i]->shape, ", got ", gradients[i].shape());
      step.results[i] = gradients[i].to(shapes[i]->dtype);
    }
  };
  const Ref<Node> node = make_node<FunctionNode>("Function", std::move(edges), outputs.size(), back);
  for (size_t i = 0; i < outputs.size(); ++i) {
    // A new array: forward() may have returned an input, or keep an output, which must not lead to itself.
    outputs[i] = NDArray(without_edge(outputs[i].impl()));
    if (is_floating(outputs[i].dtype())) set_edge(outputs[i].impl(), node, static_cast<uint32_t>(i));
  }
  return outputs;
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
