// One model, three ways to its gradient: logistic regression on handwritten digits by
//
//   define by run   mark the weights, compute the loss, call backward();
//   functional      derive the gradient function from the loss function;
//   by hand         write down the derivative.
//
// All three give the same losses. The runs share no array that changes, so the engine runs them in parallel;
// the loops below only push operations.
#include <mx/mx.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "examples/support/command_line.h"

namespace {

using namespace mx;

struct Options {
  std::string data = "examples/data/mnist";
  int64_t steps = 1000;
  int64_t batch = 100;
  int64_t every = 100;
  double rate = 0.5;
};

struct Batch {
  NDArray x;  ///< images (n, 784)
  NDArray t;  ///< labels (n,)
};

struct Run {
  NDArray w, b;
  std::vector<NDArray> losses;  ///< the loss before each step
  Run() : w(zeros({784, 10})), b(zeros({10})) {}
};

/// The mean of -log(probability of the label).
NDArray loss(const NDArray& w, const NDArray& b, const NDArray& x, const NDArray& t) {
  return cross_entropy(matmul(x, w) + b, t);
}

Run define_by_run(const std::vector<Batch>& batches, const Options& options) {
  Run run;
  // Each backward() replaces the gradients of the previous one.
  run.w.requires_grad_(GradReq::write);
  run.b.requires_grad_(GradReq::write);
  for (int64_t step = 0; step < options.steps; ++step) {
    const auto& [x, t] = batches[static_cast<size_t>(step) % batches.size()];
    const NDArray l = loss(run.w, run.b, x, t);
    l.backward();
    const NoGrad pause;
    run.w -= options.rate * run.w.grad();
    run.b -= options.rate * run.b.grad();
    run.losses.push_back(l.detach());
  }
  return run;
}

Run functional(const std::vector<Batch>& batches, const Options& options) {
  Run run;
  const auto loss_and_dw = value_and_grad(loss, /*argnum=*/0);
  const auto db = grad(loss, /*argnum=*/1);
  for (int64_t step = 0; step < options.steps; ++step) {
    const auto& [x, t] = batches[static_cast<size_t>(step) % batches.size()];
    const auto [l, dw] = loss_and_dw(run.w, run.b, x, t);
    const NDArray gb = db(run.w, run.b, x, t);
    run.w -= options.rate * dw;
    run.b -= options.rate * gb;
    run.losses.push_back(l);
  }
  return run;
}

Run by_hand(const std::vector<Batch>& batches, const Options& options) {
  Run run;
  for (int64_t step = 0; step < options.steps; ++step) {
    const auto& [x, t] = batches[static_cast<size_t>(step) % batches.size()];
    const auto n = static_cast<double>(x.size(0));
    const NDArray truth = one_hot(t, 10);
    const NDArray p = softmax(matmul(x, run.w) + run.b, 1);
    const NDArray dlogits = (p - truth) / n;  // d(loss)/d(x w + b)
    run.losses.push_back(-sum(truth * log(maximum(p, 1e-30))) / n);
    run.w -= options.rate * matmul(x.transpose(), dlogits);
    run.b -= options.rate * sum(dlogits, 0);
  }
  return run;
}

double accuracy(const Run& run, const data::ArrayDataset& digits) {
  const NoGrad pause;
  const NDArray found = argmax(matmul(digits.array(0), run.w) + run.b, 1);
  return mean((found == digits.array(1)).to(f32)).item<float>();
}

void compare(const Options& options) {
  const data::ArrayDataset train = data::mnist(options.data, data::Split::train);
  const data::ArrayDataset test = data::mnist(options.data, data::Split::test);
  std::vector<Batch> batches;
  for (int64_t i = 0; i + options.batch <= train.size(); i += options.batch) {
    const Slice rows{i, i + options.batch};
    batches.push_back({train.array(0).slice(0, rows), train.array(1).slice(0, rows)});
  }

  MX_CHECK(!batches.empty(), InvalidArgument, "[logistic_regression] expected at least ", options.batch,
           " training images for a batch, got ", train.size());

  const Run runs[] = {define_by_run(batches, options), functional(batches, options),
                      by_hand(batches, options)};

  std::printf("%8s  %-14s  %-14s  %-14s\n", "step", "define by run", "functional", "by hand");
  double apart = 0;
  for (int64_t step = 0; step < options.steps; ++step) {
    double l[3];
    for (size_t k = 0; k < 3; ++k) l[k] = runs[k].losses[static_cast<size_t>(step)].item<float>();
    apart = std::max(apart, std::max({l[0], l[1], l[2]}) - std::min({l[0], l[1], l[2]}));
    if (step % options.every == 0)
      std::printf("%8lld  %-14.9f  %-14.9f  %-14.9f\n", static_cast<long long>(step), l[0], l[1], l[2]);
  }
  std::printf("largest difference: %.1e\n", apart);
  std::printf("test accuracy: %.4f %.4f %.4f\n", accuracy(runs[0], test), accuracy(runs[1], test),
              accuracy(runs[2], test));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  mx::examples::CommandLine line(
      "Logistic regression on handwritten digits, with gradients made in three ways");
  line.option("--data", &options.data, "folder with the MNIST files");
  line.option("--steps", &options.steps, "steps of each run").within(1, 100000);
  line.option("--batch", &options.batch, "images in a step").within(1, 20000);
  line.option("--every", &options.every, "steps between two lines").at_least(1);
  line.option("--rate", &options.rate, "learning rate").positive();
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("logistic_regression", [&] { compare(options); });
}
