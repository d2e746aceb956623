#include "optim/update.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "engine/base/check.h"
#include "ndarray/copy.h"
#include "ndarray/detail/place.h"
#include "ndarray/launch.h"
#include "operators/kernels/update.h"
#include "optim/cuda_kernels.h"
#include "optim/detail/problems.h"
#include "optim/detail/update_call.h"

namespace mx::optim {

using detail::describe;
using detail::Problems;
using mx::detail::ArrayImpl;

namespace {

// A call of up to this many elements takes about 2 us.
constexpr int64_t kDirectElements = 1024;

void run_sgd(const KernelArgs& args) {
  const auto& rule = args.attr<detail::UpdateAttrs<SgdRule>>().rule;
  const detail::UpdateCall call = detail::unpack<SgdRule>(args);
  kernels::sgd_update(call.lists, call.states.empty() ? std::span<const Tensor>() : call.states[0],
                      call.common,
                      {rule.momentum, rule.dampening, rule.nesterov, rule.ema, call.step, rule.maximize});
}
const Kernel kSgd = {"sgd_update", run_sgd, cuda::update_by_sgd, kDirectElements};

void run_adam(const KernelArgs& args) {
  const auto& rule = args.attr<detail::UpdateAttrs<AdamRule>>().rule;
  const detail::UpdateCall call = detail::unpack<AdamRule>(args);
  kernels::adam_update(
      call.lists, call.states[0], call.states[1], call.common,
      {rule.beta1, rule.beta2, rule.eps, rule.decoupled, rule.bias_correction, call.step, rule.maximize},
      rule.amsgrad ? call.states[2] : std::span<const Tensor>());
}
const Kernel kAdam = {"adam_update", run_adam, cuda::update_by_adam, kDirectElements};

void run_other(const KernelArgs& args) {
  const detail::OtherRule& rule = args.attr<detail::UpdateAttrs<detail::OtherRule>>().rule;
  const detail::UpdateCall call = detail::unpack<detail::OtherRule>(args);
  kernels::rule_update(call.lists, call.states, call.common, rule.rule, {rule.maximize, call.step});
}
/// Each rule has its own kernel, so that a trace shows the rule's name.
template <class Rule>
const Kernel& kernel_of(const Rule&) {
  static constexpr Kernel kernel = {Rule::kName, run_other, cuda::update_by_rule, kDirectElements};
  return kernel;
}

bool same_place(const NDArray& a, const NDArray& b) { return a.context() == b.context(); }

void check_number(Problems& problems, const char* what, const NDArray& number, bool required) {
  if (number.defined() ? number.rank() != 0 || (number.dtype() != f32 && number.dtype() != f64) : required)
    problems.add("expected ", what, " as f32 or f64 of rank 0, got ", describe(number));
}

void check_counts(Problems& problems, const UpdateNumbers& numbers, const std::vector<NDArray>& parameters) {
  const NDArray& counts = numbers.counts;
  if (!counts.defined()) return;
  const auto n = static_cast<int64_t>(parameters.size());
  problems.expect(!numbers.step.defined(), "expected either the step or the counts, got both");
  if (counts.dtype() != f64 || counts.shape() != Shape{n} || !counts.contiguous())
    problems.add("expected counts as contiguous f64 ", Shape{n}, ", got ", describe(counts));
  for (const NDArray& w : parameters)
    if (w.defined() && !same_place(w, counts))
      problems.add("expected counts on the device of every parameter, ", w.context(), ", got ",
                   describe(counts));
}

// Reports entries that share memory: two threads would change the same elements at once.
void check_overlaps(Problems& problems, const char* what, const std::vector<NDArray>& list) {
  struct Entry {
    const Storage* storage;
    mx::detail::ByteRange range;
    size_t index;
  };
  std::vector<Entry> entries;
  entries.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].defined() && list[i].numel() > 0)
      entries.push_back({list[i].impl().storage.get(), mx::detail::byte_range(list[i].impl()), i});
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tuple(a.storage, a.range.first, a.index) < std::tuple(b.storage, b.range.first, b.index);
  });
  for (size_t i = 1; i < entries.size(); ++i) {
    const Entry &a = entries[i - 1], &b = entries[i];
    if (a.storage == b.storage && a.range.last > b.range.first)
      problems.add("expected ", what, " that do not overlap, got ", std::min(a.index, b.index), " and ",
                   std::max(a.index, b.index), ", which share memory");
  }
}

void check(const char* op, const UpdateArrays& arrays, const UpdateState& state, size_t states,
           const UpdateNumbers& numbers, bool step_required, std::source_location where) {
  Problems problems(op);
  const std::vector<NDArray>& w = arrays.parameters;
  const auto check_count = [&](const char* what, size_t count) {
    problems.expect(count == w.size(), "expected as many ", what, " as there are parameters, ", w.size(),
                    ", got ", count);
  };
  check_count("gradients", arrays.gradients.size());
  if (!arrays.copies.empty()) check_count("copies", arrays.copies.size());
  problems.expect(state.size() == states, "expected ", states, " lists of state, got ", state.size());
  for (const auto& list : state) check_count("arrays of each state", list.size());
  check_number(problems, "the learning rate", numbers.learning_rate, true);
  check_number(problems, "the step", numbers.step, step_required && !numbers.counts.defined());
  check_number(problems, "the scale", numbers.scale, false);
  check_number(problems, "the skip flag", numbers.skip, false);
  check_counts(problems, numbers, w);
  problems.raise(where);  // the checks below rely on lists of equal length

  const DType type = w.empty() || !w[0].defined() ? f32 : w[0].dtype();
  for (size_t i = 0; i < w.size(); ++i) {
    if (!w[i].defined()) {
      problems.add("expected parameter ", i, ", got an empty handle");
      continue;
    }
    if ((type != f32 && type != f64) || w[i].dtype() != type || !w[i].contiguous())
      problems.add("expected parameter ", i, " as contiguous ", type == f64 ? "f64" : "f32", ", got ",
                   describe(w[i]), w[i].contiguous() ? "" : ", which is not contiguous");
    if (w[i].impl().recorded())
      problems.add("expected parameter ", i, " not to require a gradient while it is changed, got ",
                   describe(w[i]), ", which does; use NoGrad");
    const NDArray& g = arrays.gradients[i];
    if (g.defined() && (g.shape() != w[i].shape() || !is_floating(g.dtype()) || !same_place(g, w[i])))
      problems.add("expected gradient ", i,
                   " in floating point, with the shape and device of its parameter, ", describe(w[i]),
                   ", got ", describe(g));
    for (const auto& list : state) {
      const NDArray& s = list[i];
      if (!s.defined() || s.shape() != w[i].shape() || s.dtype() != type || !s.contiguous() ||
          !same_place(s, w[i]))
        problems.add("expected the state of parameter ", i,
                     " to be contiguous, with the type, shape and device of the parameter, ", describe(w[i]),
                     ", got ", describe(s));
    }
    if (arrays.copies.empty()) continue;
    const NDArray& copy = arrays.copies[i];
    if (!copy.defined() || copy.shape() != w[i].shape() || !is_floating(copy.dtype()) || !copy.contiguous() ||
        !same_place(copy, w[i]))
      problems.add("expected the copy of parameter ", i,
                   " to be contiguous, in floating point, with the shape and device of the parameter, ",
                   describe(w[i]), ", got ", describe(copy));
  }
  std::vector<NDArray> changed = w;
  for (const auto& list : state) changed.insert(changed.end(), list.begin(), list.end());
  changed.insert(changed.end(), arrays.copies.begin(), arrays.copies.end());
  if (numbers.counts.defined()) changed.push_back(numbers.counts);
  check_overlaps(problems, "parameters, state, copies and counts", changed);
  problems.raise(where);
}

/// Launches one operation per device, in the order in which devices first appear.
template <class Rule>
void update(const Kernel& kernel, const UpdateArrays& arrays, const UpdateState& state,
            const UpdateNumbers& numbers, const Rule& rule, std::source_location where) {
  std::vector<std::pair<Context, std::vector<size_t>>> groups;
  for (size_t i = 0; i < arrays.parameters.size(); ++i) {
    if (!arrays.gradients[i].defined()) continue;
    const Context context = arrays.parameters[i].context();
    auto group = std::find_if(groups.begin(), groups.end(), [&](auto& g) { return g.first == context; });
    if (group == groups.end()) group = groups.insert(groups.end(), {context, {}});
    group->second.push_back(i);
  }
  for (const auto& [context, members] : groups) {
    detail::UpdateAttrs<Rule> call{rule};
    std::vector<NDArray> held;  // keeps the inputs alive until the launch
    std::vector<ArrayImpl*> in, out;
    const auto add = [&](NDArray array) {
      held.push_back(std::move(array));
      in.push_back(&held.back().impl());
    };
    const auto add_number = [&](const NDArray& number) {
      if (number.defined()) add(number.to(context, where));
      return number.defined();
    };
    int64_t work = 0;
    for (size_t i : members) {
      add(arrays.gradients[i].to_contiguous(where));
      work += arrays.parameters[i].numel();
    }
    add_number(numbers.learning_rate);
    call.step = add_number(numbers.step);
    call.scale = add_number(numbers.scale);
    call.skip = add_number(numbers.skip);
    const auto add_out = [&](const std::vector<NDArray>& list) {
      for (size_t i : members) out.push_back(&list[i].impl());
    };
    add_out(arrays.parameters);
    for (const auto& list : state) add_out(list);
    call.copies = !arrays.copies.empty();
    if (call.copies) add_out(arrays.copies);
    call.counts = numbers.counts.defined();
    if (call.counts) {
      out.push_back(&numbers.counts.impl());
      if (members.size() < arrays.parameters.size()) call.rows.assign(members.begin(), members.end());
    }
    const Attrs attrs = call;
    launch({.kernel = &kernel,
            .attrs = &attrs,
            .inputs = in,
            .outputs = out,
            .partial_outputs = true,  // the kernel reads their old values
            .work = work,
            .where = where});
  }
}

void run_norm(const KernelArgs& args) { kernels::total_norm(args.out[0], args.in); }
const Kernel kNorm = {"global_norm", run_norm, cuda::global_norm, kDirectElements};

void run_clip(const KernelArgs& args) {
  kernels::clip_scale(args.out[0], args.in[0], args.attr<detail::ClipAttrs>().max_norm);
}
const Kernel kClip = {"clip_scale", run_clip, cuda::clip_scale, kDirectElements};

NDArray launch_scalar(const Kernel& kernel, const Attrs* attrs, const std::vector<NDArray>& inputs,
                      DType type, std::source_location where) {
  std::vector<ArrayImpl*> in;
  int64_t work = 1;
  for (const NDArray& array : inputs) {
    in.push_back(&array.impl());
    work += array.numel();
  }
  NDArray result(mx::detail::new_array({}, type, inputs[0].context(), kernel.name));
  ArrayImpl* const out[] = {&result.impl()};
  launch({.kernel = &kernel,
          .attrs = attrs,
          .inputs = in,
          .outputs = out,
          .fresh_outputs = 1,
          .work = work,
          .where = where});
  return result;
}

}  // namespace

void sgd_update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                const SgdRule& rule, std::source_location where) try {
  check("sgd_update", arrays, state, rule.momentum != 0 ? 1 : 0, numbers, false, where);
  MX_CHECK(!rule.nesterov || rule.momentum != 0, InvalidArgument,
           "[sgd_update] expected a momentum other than 0 with nesterov, got 0");
  update(kSgd, arrays, state, numbers, rule, where);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void adam_update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                 const AdamRule& rule, std::source_location where) {
  check("adam_update", arrays, state, rule.amsgrad ? 3 : 2, numbers, true, where);
  update(kAdam, arrays, state, numbers, rule, where);
}

void rule_update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                 const UpdateRule& rule, const GradientRule& gradient, std::source_location where) {
  std::visit(
      [&](const auto& own) {
        check(own.kName, arrays, state, own.states(), numbers, own.kNeedsStep, where);
        update(kernel_of(own), arrays, state, numbers,
               detail::OtherRule{own, gradient.weight_decay, gradient.clip, gradient.maximize}, where);
      },
      rule);
}

NDArray global_norm(const std::vector<NDArray>& arrays, std::source_location where) try {
  Problems problems("global_norm");
  std::vector<std::pair<Context, std::vector<NDArray>>> groups;
  DType type = f32;
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i].defined()) continue;
    const NDArray& array = arrays[i];
    if (!is_floating(array.dtype()))
      problems.add("expected array ", i, " in floating point, got ", describe(array));
    if (array.dtype() == f64) type = f64;
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == array.context(); });
    if (group == groups.end()) group = groups.insert(groups.end(), {array.context(), {}});
    group->second.push_back(array.to_contiguous(where));
  }
  problems.raise(where);
  if (groups.empty()) return zeros({});
  std::vector<NDArray> norms;
  for (const auto& [context, members] : groups)
    norms.push_back(launch_scalar(kNorm, nullptr, members, groups.size() > 1 ? f64 : type, where)
                        .to(groups[0].first, where));
  return norms.size() == 1 ? norms[0] : launch_scalar(kNorm, nullptr, norms, type, where);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray clip_scale(const NDArray& norm, double max_norm, std::source_location where) try {
  Problems problems("clip_scale");
  check_number(problems, "the norm", norm, true);
  problems.expect(max_norm > 0, "expected a largest norm above 0, got ", max_norm);
  problems.raise(where);
  const Attrs attrs = detail::ClipAttrs{max_norm};
  return launch_scalar(kClip, &attrs, {norm}, norm.dtype(), where);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

}  // namespace mx::optim
