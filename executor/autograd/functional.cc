#include "executor/autograd/functional.h"

#include "engine/base/check.h"
#include "executor/autograd/backward.h"
#include "executor/autograd/function_node.h"
#include "operators/elementwise_binary.h"
#include "operators/reduce.h"
#include "operators/shape_ops.h"

namespace mx::detail {
namespace {

// The nesting depth of functions of this file on this thread. An inner gradient is differentiated by the
// outer function, so it must be recorded.
thread_local constinit int depth = 0;

class Inside {
 public:
  Inside() { ++depth; }
  ~Inside() { --depth; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

constexpr const char* kArgument =
    "that is the argument of a function given to grad(), value_and_grad(), jacobian() or hvp(); change a "
    "clone() of it instead";

// The node of an argument that is recorded. Gradients flow on to the argument.
class ArgumentNode final : public FunctionNode {
 public:
  explicit ArgumentNode(Edge argument)
      : FunctionNode("argument", {std::move(argument)}, 1, [](const Step& step) {
          if (step.wanted[0] != 0) step.results[0] = step.heads[0];
        }) {}
  const char* why_fixed() const override { return kArgument; }
};

// Returns the argument as an array with respect to which gradients can be computed. If the argument is
// recorded, gradients flow on to it. Otherwise the array is a new leaf. It shares the argument's memory
// unless elements of the argument share memory. So the function must not change it: that would change the
// caller's array, and the gradient would be that with respect to the changed values.
NDArray variable(const NDArray& argument) {
  MX_CHECK(is_floating(argument.dtype()), InvalidArgument,
           "[grad] expected an argument of a floating-point type, got ", argument.dtype());
  NDArray x = argument.detach();
  if (x.impl().may_overlap()) x = x.clone();
  if (argument.impl().recorded()) {
    set_edge(x.impl(), make_node<ArgumentNode>(edge_of(argument.impl())), 0);
  } else {
    x.requires_grad_();
    static_cast<Leaf&>(*edge_of(x.impl()).node).set_why_fixed(kArgument);
  }
  return x;
}

// Whether the results are recorded, so that they can be differentiated again.
enum class Again {
  no,      // no: the caller is not recording
  others,  // only if f has captured recorded arrays, which its graph will show
  yes,     // yes: inside of another function of this file, or because an argument is recorded
};

struct Evaluated {
  NDArray x, y;
  Again again;
};

Evaluated evaluate(const ArrayFunction& f, std::vector<NDArray> arguments, size_t argnum) {
  MX_CHECK(argnum < arguments.size(), InvalidArgument,
           "[grad] expected argnum below the number of arguments ", arguments.size(), ", got ", argnum);
  Again again = depth > 0 ? Again::yes : Again::others;
  for (const NDArray& argument : arguments)
    if (argument.impl().recorded()) again = Again::yes;
  if (!recording) again = Again::no;
  const NDArray x = variable(arguments[argnum]);
  arguments[argnum] = x;
  const SavedValue before(x.impl());
  Inside inside;
  EnableGrad on;
  NDArray y = f(arguments);
  // The thread that records cannot change x. But the function may have changed it under NoGrad, or another
  // array of the same memory.
  const uint32_t changes = before.changes(x.impl());
  MX_CHECK(changes == 0, InvalidState,
           "[grad] expected a function that does not change its argument in place, got one that changed "
           "argument ",
           argnum, " of shape ", x.shape(), ' ', changes, " times; change a clone() of it instead");
  return {x, std::move(y), again};
}

// If `again` is `others` and the graph has further leaves, sets it to `yes`. This then applies to the value
// and to further gradients too.
NDArray gradient(const NDArray& y, const NDArray& x, const NDArray& head, bool retain, Again& again) {
  if (!y.requires_grad()) return zeros_like(x);
  const bool create = again == Again::yes;
  bool others = false;
  const NDArray g =
      gradients_of({&y, 1}, {&x, 1}, {&head, 1}, {.retain_graph = retain || create, .create_graph = create},
                   again == Again::others ? &others : nullptr)[0];
  if (others) again = Again::yes;
  return g.defined() ? g : zeros_like(x);
}

void check_scalar(const NDArray& y, const char* op) {
  MX_CHECK(y.numel() == 1, InvalidArgument, "[", op,
           "] expected a function that returns one element, got shape ", y.shape());
}

}  // namespace

ValueAndGrad value_and_grad(const ArrayFunction& f, const std::vector<NDArray>& arguments, size_t argnum) {
  auto [x, y, again] = evaluate(f, arguments, argnum);
  check_scalar(y, "grad");
  NDArray g = gradient(y, x, {}, false, again);
  // The caller may change the value. That must not change the argument.
  if (y.shares_memory(x)) y = y.clone();
  return {again == Again::yes ? y : y.detach(), std::move(g)};
}

NDArray jacobian(const ArrayFunction& f, const std::vector<NDArray>& arguments, size_t argnum) {
  auto [x, y, again] = evaluate(f, arguments, argnum);
  std::vector<NDArray> rows;
  const int64_t n = y.numel();
  for (int64_t i = 0; i < n; ++i) {
    NDArray head = zeros_like(y);
    head.flatten()[i] = 1;
    rows.push_back(gradient(y, x, head, true, again));
  }
  Shape shape = y.shape();
  for (int64_t size : x.shape()) shape.push_back(size);
  return rows.empty() ? zeros(shape, x.dtype(), x.context()) : stack(rows).reshape(shape);
}

NDArray hvp(const ArrayFunction& f, const NDArray& x, const NDArray& v) {
  MX_CHECK(v.shape() == x.shape(), InvalidArgument, "[hvp] expected a vector of the argument's shape ",
           x.shape(), ", got ", v.shape());
  const auto once = [&](const std::vector<NDArray>& a) { return sum(value_and_grad(f, a, 0).grad * v); };
  return value_and_grad(once, {x}, 0).grad;
}

}  // namespace mx::detail
