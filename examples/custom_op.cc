// Two custom operators: a struct with a kernel that runs in the engine, and a formula for one element.
#include <mx/mx.h>

#include <cmath>
#include <iostream>

#include "examples/support/command_line.h"

using namespace mx;

// z = a * x + y for arrays of f32.
struct Axpy : CustomOp {
  double a = 1;
  template <class V>
  static void fields(V&& v) {
    v("a", &Axpy::a, "the factor of x");
  }

  static Operator record() {
    return {.kernel = {"axpy"}, .doc = "a * x + y.", .inputs = {"x", "y"}, .in_place = bit_set(0, 1)};
  }

  void infer(InferContext& c) const {
    if (!(c.shape(0) == c.shape(1)) || c.dtype(0) != f32 || c.dtype(1) != f32)
      throw InvalidArgument("expected two arrays of f32 of the same shape");
    c.output(c.shape(0), f32);
  }

  // Inputs may be views, so the kernel uses their strides.
  void forward(const KernelArgs& args) const {
    const Tensor &x = args.in[0], &y = args.in[1], &z = args.out[0];
    const float factor = static_cast<float>(a);
    const kernels::LoopPlan<3> plan({&z, &x, &y});
    kernels::parallel_runs<3>(plan, [&](const int64_t* at, int64_t n) {
      float* const to = z.as<float>() + at[0];
      const float* const px = x.as<float>() + at[1];
      const float* const py = y.as<float>() + at[2];
      const auto [dz, dx, dy] = std::array{plan.strides[0][0], plan.strides[1][0], plan.strides[2][0]};
      for (int64_t i = 0; i < n; ++i) to[i * dz] = factor * px[i * dx] + py[i * dy];
    });
  }

  void gradient(GradientContext& g) const {
    if (g.wanted(0)) g.set(0, g.head() * a);
    if (g.wanted(1)) g.set(1, g.head());
  }
};

NDArray softsign(const NDArray& x) {
  static const Operator op =
      unary_operator("softsign", "x / (1 + |x|).", [](auto v) { return v / (1 + std::abs(v)); });
  return call(op, {}, x);
}

int main(int argc, char** argv) {
  examples::CommandLine line("Two operators that the program defines itself");
  if (const auto status = line.parse(argc, argv)) return *status;
  NDArray x = arange(0, 6, 1, f32).reshape({2, 3}), y = ones({3, 2}).transpose();
  NDArray z = custom<Axpy>({x, y}, {{"a", 2.0}});
  std::cout << z << '\n' << softsign(z) << '\n';

  // A wrong shape throws at the call. An error inside the kernel is thrown when the result is read.
  try {
    custom<Axpy>({x, zeros({4})});
  } catch (const InvalidArgument& e) {
    std::cout << e.what() << '\n';
  }
  return 0;
}
