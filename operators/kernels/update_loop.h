// The loops over lists of parameters, and the checks, that all update kernels share. Internal to them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ndarray/kernels/parallel.h"
#include "operators/kernels/row_convert.h"
#include "operators/kernels/update.h"
#include "operators/kernels/update_step.h"

namespace mx::kernels::detail {

inline constexpr int64_t kUpdatePiece = 16384;
inline constexpr int64_t kUpdateRun = 1024;  // elements whose gradients are converted at once

/// The lists of state of a rule, by slot; empty for a slot that it does not have.
using StateLists = std::array<std::span<const Tensor>, 3>;

/// Returns the value of a tensor of rank 0. Throws InvalidArgument, naming `op` and `what`, for another rank
/// or type than f32 and f64.
double scalar(const char* op, const char* what, const Tensor& t);

/// Returns where each tensor begins in the sequence of all elements.
std::vector<int64_t> starts_of(std::span<const Tensor> tensors);

/// Calls body(tensor, first, n) for each part of a tensor within elements [begin, end) of the sequence.
template <class Body>
void for_each_part(const std::vector<int64_t>& starts, int64_t begin, int64_t end, const Body& body) {
  auto at = static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) - 1;
  for (; begin < end; ++at) {
    const int64_t n = std::min(starts[at + 1], end) - begin;
    if (n > 0) body(at, begin - starts[at], n);
    begin += n;
  }
}

void check_list(const char* op, const char* what, std::span<const Tensor> list,
                std::span<const Tensor> parameters, bool same_type);

/// Checks the arguments that all rules have in common. Returns false if there is nothing to do.
bool check_lists(const char* op, const UpdateLists& lists, const StateLists& states,
                 const UpdateCommon& common);

GradientStep gradient_step(const char* op, const UpdateCommon& common, bool maximize);

/// Returns the step number of each parameter, or one number for all, or none without counts and step.
std::vector<double> step_numbers(const char* op, size_t parameters, const Tensor* step,
                                 const UpdateCommon& common);

/// Stores the numbers as the counts, if there are counts.
void count(const UpdateCommon& common, const std::vector<double>& numbers);

bool skipped(const char* op, const UpdateCommon& common);

/// Returns make(t) for each step number t: one step for all parameters, or one for each.
template <class Make>
std::vector<Step> steps_for(const std::vector<double>& numbers, const Make& make) {
  std::vector<Step> steps;
  steps.reserve(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i)
    steps.push_back(i > 0 && numbers[i] == numbers[i - 1] ? steps.back() : Step(make(numbers[i])));
  return steps;
}

/// Calls body(i, first, n, g, part) on runs of at most kUpdateRun elements of parameter i; runs whose
/// gradient has the type T may be longer if `long_runs`. `part` numbers the parts of parameters in pieces: it
/// is below parts_of(starts), and one thread at a time works on a part, in the order of memory.
template <class T, class Body>
void for_each_run(const UpdateLists& lists, const std::vector<int64_t>& starts, bool long_runs,
                  const Body& body) {
  parallel_for(starts.back(), kUpdatePiece, [&](int64_t begin, int64_t end) {
    for_each_part(starts, begin, end, [&](size_t i, int64_t first, int64_t n) {
      const Tensor& gradient = lists.gradients[i];
      const size_t part = static_cast<size_t>(begin / kUpdatePiece) + i;
      const bool same = gradient.dtype == dtype_of<T>;
      const int64_t most = same && long_runs ? n : kUpdateRun;
      T buffer[kUpdateRun];
      for (int64_t done = 0; done < n; done += most) {
        const int64_t at = first + done, here = std::min(most, n - done);
        if (!same) load_run(buffer, gradient.data, gradient.dtype, at, 1, here);
        body(i, at, here, same ? gradient.as<T>() + at : buffer, part);
      }
    });
  });
}
inline size_t parts_of(const std::vector<int64_t>& starts) {
  return static_cast<size_t>((starts.back() + kUpdatePiece - 1) / kUpdatePiece) + starts.size() - 1;
}

template <class T>
StateRun<T> state_run(const StateLists& states, size_t i, int64_t first) {
  StateRun<T> run{};
  for (size_t k = 0; k < states.size(); ++k)
    if (!states[k].empty()) run[k] = states[k][i].as<T>() + first;
  return run;
}

/// Runs the steps: one for all parameters, or one for each.
void run_steps(const UpdateLists& lists, const StateLists& states, const std::vector<Step>& steps);

}  // namespace mx::kernels::detail
