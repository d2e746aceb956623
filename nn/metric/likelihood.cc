#include "nn/metric/likelihood.h"

#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "nn/metric/rows.h"

namespace mx::metric {
namespace {

/// Returns log(sum(exp(x))) of a row, without overflow.
template <class T>
double log_sum_exp(const detail::Row<T>& row) {
  double top = -std::numeric_limits<double>::infinity();
  for (int64_t c = 0; c < row.classes; ++c) {
    const auto x = static_cast<double>(row.score(c));
    if (std::isnan(x)) return x;
    top = std::max(top, x);
  }
  if (std::isinf(top)) return top;
  double sum = 0;
  for (int64_t c = 0; c < row.classes; ++c) sum += std::exp(static_cast<double>(row.score(c)) - top);
  return top + std::log(sum);
}

/// Rows are computed by several threads and added in their order, so the sum does not depend on the threads.
template <bool kLogProbabilities>
void run_likelihood(const KernelArgs& args) {
  const auto rows = static_cast<size_t>(args.in[1].numel());
  std::vector<double> losses(rows, 0.0);
  std::vector<uint8_t> counted(rows, 0);
  detail::for_each_row(args, kLogProbabilities ? "nll" : "cross_entropy", [&] {
    return [&](const auto& row, int64_t i) {
      const auto own = static_cast<double>(row.score(row.label));
      losses[static_cast<size_t>(i)] = kLogProbabilities ? -own : log_sum_exp(row) - own;
      counted[static_cast<size_t>(i)] = 1;
    };
  });
  double sum = 0, count = 0;
  for (size_t i = 0; i < rows; ++i) {
    sum += losses[i];
    count += counted[i];
  }
  auto* const sums = args.out[0].as<double>();
  sums[0] += sum;
  sums[1] += count;
}
const Kernel kCrossEntropy = {"cross_entropy", run_likelihood<false>, nullptr, 256};
const Kernel kNll = {"nll", run_likelihood<true>, nullptr, 1024};

}  // namespace

CrossEntropy::CrossEntropy(const ClassOptions& options, bool log_probabilities)
    : options_(options), log_probabilities_(log_probabilities), sums_(zeros({2}, f64)) {}

void CrossEntropy::update(const NDArray& logits, const NDArray& labels, std::source_location where) {
  detail::add_counts(log_probabilities_ ? kNll : kCrossEntropy, sums_, logits, labels, options_, 1, -1,
                     where);
}

double CrossEntropy::value() const {
  const std::vector<double> sums = sums_.to_vector<double>();
  return sums[1] == 0 ? std::numeric_limits<double>::quiet_NaN() : sums[0] / sums[1];
}

void CrossEntropy::reset() { sums_.fill_(0); }

double Perplexity::value() const { return std::exp(CrossEntropy::value()); }

}  // namespace mx::metric
