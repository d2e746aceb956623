// Functional gradients: grad() takes a function and returns its gradient, which is a function as well. No
// array has to be marked, no gradient is stored in an array, and grad() can be applied to its own result.
#include <mx/mx.h>

#include <cstdio>

#include "examples/support/command_line.h"

namespace {

using namespace mx;

void show(const char* name, const NDArray& values) {
  std::printf("%s =", name);
  for (const double v : values.to_vector<double>()) std::printf(" %.15g", v);
  std::printf("\n");
}

// Gradients of gradients: each call of grad() differentiates once more.
void derivatives(double at) {
  auto f = [](const NDArray& x) { return tanh(x); };
  auto f1 = grad(f);
  auto f2 = grad(f1);
  auto f3 = grad(f2);
  const NDArray x = full({}, at, f64);
  show("tanh", f(x));
  show("first", f1(x));
  show("second", f2(x));
  show("third", f3(x));
}

// Which argument: the same function with respect to its weights and to its inputs.
void arguments(double at) {
  const NDArray x = array({{1.0, 2.0, -1.0}, {0.5, -0.25, 3.0}}) * at;  // (2, 3)
  const NDArray w = array({{0.1}, {-0.2}, {0.3}});                      // (3, 1)
  auto f = [](const NDArray& weights, const NDArray& inputs) { return sum(tanh(matmul(inputs, weights))); };
  const auto [value, dw] = value_and_grad(f, /*argnum=*/0)(w, x);
  show("value", value);
  show("dw", dw);
  show("dx", grad(f, /*argnum=*/1)(w, x));
}

// Matrices: the gradient of logsumexp is softmax, so the Jacobian of softmax is the matrix of second
// derivatives of logsumexp. hvp() multiplies by it without making it.
void matrices(double at) {
  const NDArray x = array({0.0, 1.0, 0.5}) * at, v = array({1.0, -1.0, 2.0});
  auto energy = [](const NDArray& a) { return logsumexp(a); };
  const NDArray jacobian_of_softmax = jacobian([](const NDArray& a) { return softmax(a); })(x);
  show("gradient", grad(energy)(x));
  show("jacobian", jacobian_of_softmax);
  show("jacobian v", matmul(jacobian_of_softmax, v));
  show("hvp", hvp(energy, x, v));
}

}  // namespace

int main(int argc, char** argv) {
  double x = 0.5;
  mx::examples::CommandLine line("Functions of gradients, made of functions");
  line.option("--x", &x, "where to look").within(-10, 10);
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("functional_grad", [&] {
    derivatives(x);
    arguments(x);
    matrices(x);
  });
}
