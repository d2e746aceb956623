// Define by run: the operations are recorded while the program computes, and the record is differentiated.
// Branches and loops are ordinary C++. They may depend on values; the gradient is that of the branch that was
// taken.
#include <mx/mx.h>

#include <cmath>
#include <cstdio>

#include "examples/support/command_line.h"

namespace {

using namespace mx;

// A branch: one of two formulas, chosen by a value.
void branch(double x) {
  NDArray v1 = array({x}).requires_grad_();
  NDArray v2 = exp(v1), v4 = v2 * (v2 + 1);
  const bool large = v4.item<double>() > 0.5;  // waits for v4, because the host reads it
  NDArray v5 = large ? v4 * 2 : v4;
  v5.backward();
  std::printf("branch x=%.17g way=%s value=%.15g gradient=%.15g\n", x, large ? "doubled" : "plain",
              v5.item<double>(), v1.grad().item<double>());
}

// A loop: Newton's method for the square root, with as many iterations as the number needs. The backward pass
// runs through all of them.
void loop(double number) {
  NDArray a = array({number}).requires_grad_();
  NDArray y = a;
  int rounds = 0;
  while (std::abs((y * y - a).item<double>()) > 1e-12 * number) {
    y = (y + a / y) / 2;
    ++rounds;
  }
  y = (y + a / y) / 2;  // one more iteration: the gradient converges one iteration later than the value
  y.backward();
  std::printf("loop a=%.17g rounds=%d value=%.15g gradient=%.15g\n", number, rounds + 1, y.item<double>(),
              a.grad().item<double>());
}

}  // namespace

int main(int argc, char** argv) {
  double x = 2;
  mx::examples::CommandLine line("Gradients of what ran: branches and loops of the host");
  line.option("--x", &x, "where to look; -x as well, and the root of its square plus 1").within(-10, 10);
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("define_by_run", [&] {
    branch(x);
    branch(-x);
    loop(x * x + 1);
  });
}
