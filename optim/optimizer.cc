#include "optim/optimizer.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "ndarray/hooks.h"
#include "ndarray/io/tensor_record.h"
#include "ndarray/priority.h"
#include "operators/elementwise_binary.h"
#include "operators/indexing.h"
#include "operators/row_sparse.h"
#include "optim/detail/gradient_factor.h"
#include "optim/detail/names.h"
#include "optim/detail/problems.h"

namespace mx::optim {

using detail::at_least_0;
using detail::describe;
using detail::Problems;

namespace {

/// Returns true if the array is the result of a recorded operation. Such an array has no gradient to step
/// with.
bool is_result(const NDArray& array) {
  return array.requires_grad() && mx::detail::hooks().is_leaf != nullptr &&
         !mx::detail::hooks().is_leaf(array);
}

/// Returns the gradients with row-sparse ones replaced by the rows that they hold. The norm is the same.
std::vector<NDArray> with_rows_only(std::vector<NDArray> gradients) {
  for (NDArray& gradient : gradients)
    if (const auto part = row_sparse(gradient)) gradient = part->values;
  return gradients;
}

/// Reports arrays that share memory: a step would update them twice, or from two threads at once.
void check_distinct(Problems& problems, const Parameters& all) {
  std::vector<std::tuple<const Storage*, int64_t, int64_t, size_t>> ranges;  // first and last byte
  for (size_t i = 0; i < all.size(); ++i) {
    const NDArray& array = all[i];
    if (!array.defined() || array.numel() == 0) continue;
    const auto range = mx::detail::byte_range(array.impl());
    ranges.emplace_back(array.impl().storage.get(), range.first, range.last, i);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    const auto& [storage_a, first_a, last_a, a] = ranges[i - 1];
    const auto& [storage_b, first_b, last_b, b] = ranges[i];
    if (storage_a == storage_b && first_b < last_a)
      problems.add("expected each parameter once, got '", all[std::min(a, b)].name, "' and '",
                   all[std::max(a, b)].name, "', which share memory");
  }
}

}  // namespace

Optimizer::~Optimizer() = default;

// Adding.

void Optimizer::check_arrays(Problems& problems, const Parameters& all, size_t first) const {
  for (size_t i = first; i < all.size(); ++i) {
    const NDArray& p = all[i];
    const std::string& name = all[i].name;
    if (!p.defined() || !is_floating(p.dtype()) || !p.contiguous())
      problems.add("expected parameter '", name, "' to be contiguous and of a floating-point type, got ",
                   describe(p), p.defined() && !p.contiguous() ? ", which is not contiguous" : "");
    else if (is_result(p))
      problems.add("expected parameter '", name,
                   "' not to be the result of a recorded operation, got such a result, ", describe(p));
    else if (i < layout_.places.size() && p.shape() != weight(i).shape())
      problems.add("expected parameter '", name, "' to keep its shape, ", weight(i).shape(), ", got ",
                   describe(p));
  }
  check_distinct(problems, all);
}

void Optimizer::check_group(Problems& problems, const Parameters& added, const Group& group) const {
  for (const NamedParameter& p : added)
    if (!io::is_utf8(p.name))
      problems.add("expected a parameter name in UTF-8, because state is saved under it, got ",
                   io::in_quotes(p.name));
  if (!at_least_0(group.multipliers.lr) || !at_least_0(group.multipliers.weight_decay))
    problems.add("expected multipliers of at least 0, got lr ", group.multipliers.lr, " and weight_decay ",
                 group.multipliers.weight_decay);
  if (group.max_norm > 0 && max_norm_ > 0 && group.max_norm != max_norm_)
    problems.add("expected the max_norm of the other groups, ", max_norm_,
                 ", or 0, because it limits all gradients together, got ", group.max_norm);
}

void Optimizer::add(const Parameters& parameters, const Group& group, std::source_location where) {
  const NoGrad pause;
  // An undefined Parameter, such as the bias of a layer without one, becomes one with an empty handle, which
  // check_arrays() reports.
  const Parameters added = detail::with_names(parameters_, parameters);
  Parameters all = parameters_;
  all.insert(all.end(), added.begin(), added.end());
  Problems problems(name_);
  check_group(problems, added, group);
  check_arrays(problems, all, parameters_.size());
  problems.raise(where);
  Layout layout = layout_;
  lay_out(layout, groups_.size(), group, all, parameters_.size(), all.size(), std::vector<Kept>(added.size()),
          where);

  groups_.push_back(group);
  begins_.push_back(parameters_.size());
  max_norm_ = std::max(max_norm_, group.max_norm);
  parameters_ = std::move(all);
  layout_ = std::move(layout);
}

const Optimizer::Group& Optimizer::group(size_t i) const {
  MX_CHECK(i < groups_.size(), InvalidArgument, "[", name_, "] expected a group index below ", groups_.size(),
           ", got ", i);
  return groups_[i];
}

size_t Optimizer::group_of(size_t parameter) const {
  MX_CHECK(parameter < parameters_.size(), InvalidArgument, "[", name_,
           "] expected the index of a parameter below ", parameters_.size(), ", got ", parameter);
  // The last group that begins at or before the parameter. Empty groups begin where the next one does.
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), parameter);
  return static_cast<size_t>(after - begins_.begin()) - 1;
}

// Layout.

const NDArray& Optimizer::weight(size_t parameter) const {
  const Place& place = layout_.places[parameter];
  const Shard& shard = layout_.shards[place.shard];
  return shard.masters() ? shard.arrays.copies[place.row] : shard.arrays.parameters[place.row];
}

/// Adds the shards of one group, whose parameters are all[first] to all[last - 1], to the layout.
void Optimizer::lay_out(Layout& layout, size_t number, const Group& group, const Parameters& all,
                        size_t first, size_t last, const std::vector<Kept>& kept,
                        std::source_location where) const {
  const size_t first_shard = layout.shards.size();
  for (size_t i = first; i < last; ++i) {
    const NDArray& p = all[i];
    const Kept& own = kept[i - first];
    size_t s = first_shard;
    const auto holds = [&](const Shard& shard) {
      const NDArray& other = shard.masters() ? shard.arrays.copies[0] : shard.arrays.parameters[0];
      return other.context() == p.context() && other.dtype() == p.dtype() && shard.part == part_of(i);
    };
    while (s < layout.shards.size() && !holds(layout.shards[s])) ++s;
    if (s == layout.shards.size()) {
      Shard& made = layout.shards.emplace_back();
      made.group = number;
      made.part = part_of(i);
      made.numbers.learning_rate = full({}, group.lr * group.multipliers.lr, f64, p.context());
      made.state.resize(group.state.size());
    }
    Shard& shard = layout.shards[s];
    layout.places.push_back({s, shard.members.size()});
    shard.members.push_back(i);
    const bool half = p.dtype() != f32 && p.dtype() != f64;
    const NDArray changed = !half                  ? p
                            : own.master.defined() ? own.master.to(p.context(), where)
                                                   : p.to(f32, where);
    shard.arrays.parameters.push_back(changed);
    if (half) shard.arrays.copies.push_back(p);
    for (size_t k = 0; k < shard.state.size(); ++k)
      shard.state[k].push_back(own.state.empty()
                                   ? full_like(changed, group.initial.empty() ? 0 : group.initial[k])
                                   : own.state[k].to(changed.dtype(), where).to(changed.context(), where));
  }
  if (!group.counts) return;
  for (size_t s = first_shard; s < layout.shards.size(); ++s) {
    Shard& shard = layout.shards[s];
    NDArray counts =
        zeros({static_cast<int64_t>(shard.members.size())}, f64, shard.arrays.parameters[0].context());
    for (size_t row = 0; row < shard.members.size(); ++row)
      if (const NDArray& count = kept[shard.members[row] - first].count; count.defined())
        counts.select(0, static_cast<int64_t>(row)).copy_from(count, where);
    shard.numbers.counts = counts;
  }
}

Optimizer::Kept Optimizer::kept_for(size_t parameter) const {
  const Place& place = layout_.places[parameter];
  const Shard& shard = layout_.shards[place.shard];
  Kept kept;
  for (const auto& list : shard.state) kept.state.push_back(list[place.row]);
  if (shard.numbers.counts.defined())
    kept.count = shard.numbers.counts.select(0, static_cast<int64_t>(place.row));
  if (shard.masters()) kept.master = shard.arrays.parameters[place.row];
  return kept;
}

/// If a Parameter has another array than in the layout, because its module was moved, makes a new layout and
/// moves the state.
void Optimizer::follow(std::source_location where) const {
  bool moved = false;
  for (size_t i = 0; i < parameters_.size() && !moved; ++i)
    moved = &parameters_[i].array().impl() != &weight(i).impl();
  if (!moved) return;
  Problems problems(name_);
  check_arrays(problems, parameters_, 0);
  problems.raise(where);
  renew_layout(where);
}

/// Makes a layout of the parameters' current arrays and parts, and moves the state.
void Optimizer::renew_layout(std::source_location where) const {
  Layout layout;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t last = g + 1 < groups_.size() ? begins_[g + 1] : parameters_.size();
    std::vector<Kept> kept;
    for (size_t i = begins_[g]; i < last; ++i) kept.push_back(kept_for(i));
    lay_out(layout, g, groups_[g], parameters_, begins_[g], last, kept, where);
  }
  layout_ = std::move(layout);
}

// Steps.

void Optimizer::check_gradients(const std::vector<NDArray>& gradients, std::source_location where) const {
  Problems problems(name_);
  problems.expect(gradients.size() == parameters_.size(), "expected a gradient for each of ",
                  parameters_.size(), " parameters, got ", gradients.size());
  problems.raise(where);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const NDArray &g = gradients[i], &p = parameters_[i];
    if (g.defined() && (g.shape() != p.shape() || !is_floating(g.dtype()) || g.context() != p.context()))
      problems.add("expected the gradient of '", parameters_[i].name,
                   "' in floating point, with the shape and device of its parameter, ", describe(p), ", got ",
                   describe(g));
  }
  problems.raise(where);
}

void Optimizer::unscale(std::source_location where) try {
  MX_CHECK(loss_scale_.has_value(), InvalidState, "[", name_,
           "] expected an optimiser with a loss scale for unscale(), got one without",
           mx::detail::called_at(where));
  MX_CHECK(!unscaled_, InvalidState, "[", name_,
           "] expected one call of unscale() for each step, got another one", mx::detail::called_at(where));
  const NoGrad pause;
  const NDArray scale = loss_scale_->value();
  // All quotients before any gradient changes: an error leaves all as they were.
  std::vector<NDArray> quotients(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const NDArray &p = parameters_[i], g = p.grad();
    if (!g.defined()) continue;
    const NDArray divisor = scale.to(p.context()).to(accumulation_type(g.dtype()));
    if (const std::optional<RowSparse> rows = row_sparse(g)) {
      quotients[i] =
          mx::detail::make_row_sparse({rows->rows, (rows->values / divisor).to(g.dtype())}, p.shape()[0]);
    } else {
      quotients[i] = g.detach() / divisor;
    }
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!quotients[i].defined()) continue;
    const NDArray g = parameters_[i].grad();
    if (row_sparse(g)) {
      parameters_[i].set_grad(quotients[i]);
    } else {
      NDArray target = g.detach();
      target.copy_from(quotients[i], where);
    }
  }
  unscaled_ = true;
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void Optimizer::step(std::source_location where) {
  std::vector<NDArray> gradients;
  gradients.reserve(parameters_.size());
  bool any = false;
  for (const NDArray& p : parameters_) {
    any = any || p.requires_grad();
    gradients.push_back(p.grad());
  }
  MX_CHECK(any, InvalidState, "[", name_,
           "] expected a parameter that requires a gradient (requires_grad_()), got none among ",
           parameters_.size(), mx::detail::called_at(where));
  step(gradients, where);
}

void Optimizer::step(const std::vector<NDArray>& gradients, std::source_location where) try {
  const NoGrad pause;
  follow(where);
  check_gradients(gradients, where);
  if (recoverable_) wait_for_gradients(gradients, where);
  const detail::GradientFactor factor = detail::gradient_factor(
      with_rows_only(gradients), max_norm_, loss_scale_ ? &*loss_scale_ : nullptr, unscaled_, where);
  norm_ = factor.norm;
  for (size_t part = 0; part <= part_priorities_.size(); ++part) {
    const PriorityScope priority(part > 0 ? part_priorities_[part - 1] : mx::detail::launch_priority);
    for (Shard& shard : layout_.shards)
      if (shard.part == part) step_shard(shard, gradients, factor.scale, factor.skip, where);
  }
  unscaled_ = false;
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

/// Puts an operation of the CPU between the gradients on accelerators and the step. Such an operation starts
/// when its inputs have been computed, and an accelerator's operation does not. If a gradient has failed, the
/// operation is skipped, so the step is known to be skipped before it is enqueued.
///
///   accelerator  ... backward pass |                              | update
///   CPU                            | nothing, or skipped: failed  |
///
/// The operation declares an update of the gradients, so that all that reads them comes after it.
void Optimizer::wait_for_gradients(const std::vector<NDArray>& gradients, std::source_location where) const {
  Engine& engine = current_engine();
  if (engine.recording()) return;
  std::vector<std::vector<Var>> vars(part_priorities_.size() + 1);  // by part
  for (size_t i = 0; i < gradients.size(); ++i) {
    const NDArray& gradient = gradients[i];
    if (!gradient.defined() || gradient.context().is_cpu()) continue;
    std::vector<Var>& of_part = vars[part_of(i)];
    if (const std::optional<RowSparse> part = row_sparse(gradient)) {
      of_part.push_back(part->rows.var());
      of_part.push_back(part->values.var());
    } else {
      of_part.push_back(gradient.var());
    }
  }
  for (size_t part = 0; part < vars.size(); ++part)
    if (!vars[part].empty())
      engine.push([] {},
                  {.updates = vars[part],
                   .priority = part > 0 ? part_priorities_[part - 1] : mx::detail::launch_priority,
                   .name = "wait_for_gradients"},
                  where);
}

void Optimizer::step_shard(Shard& shard, const std::vector<NDArray>& gradients, const NDArray& scale,
                           const NDArray& skip, std::source_location where) const {
  struct DropGradients {  // gradients take as much memory as the parameters, so they are not kept
    Shard& shard;
    ~DropGradients() {
      shard.arrays.gradients.clear();
      shard.numbers.scale = shard.numbers.skip = NDArray();
    }
  } const drop{shard};
  std::vector<std::pair<size_t, RowSparse>> parts;
  for (size_t row = 0; row < shard.members.size(); ++row) {
    const NDArray& gradient = gradients[shard.members[row]];
    std::optional<RowSparse> part = elementwise() ? row_sparse(gradient) : std::nullopt;
    shard.arrays.gradients.push_back(part ? NDArray() : gradient);
    if (part) parts.emplace_back(row, std::move(*part));
  }
  shard.numbers.scale = scale;
  shard.numbers.skip = skip;
  update(shard.group, shard.arrays, shard.state, shard.numbers, where);
  for (const auto& [row, part] : parts) step_rows(shard, row, part, where);
}

/// Updates the rows of one parameter: copies of these rows take the place of the parameter and its state.
void Optimizer::step_rows(const Shard& shard, size_t row, const RowSparse& gradient,
                          std::source_location where) const {
  // The last index may stand for no row. It reads the last row, and put_rows() leaves its result out.
  const auto rows_of = [&](const NDArray& all) {
    return take({all, where}, gradient.rows, 0, IndexMode::clip);
  };
  UpdateArrays arrays{.parameters = {rows_of(shard.arrays.parameters[row])}, .gradients = {gradient.values}};
  if (shard.masters()) arrays.copies.push_back(rows_of(shard.arrays.copies[row]));
  UpdateState state;
  for (const auto& list : shard.state) state.push_back({rows_of(list[row])});
  UpdateNumbers numbers = shard.numbers;
  if (const auto at = static_cast<int64_t>(row); numbers.counts.defined())
    numbers.counts = numbers.counts.slice(0, Slice{at, at + 1});
  update(shard.group, arrays, state, numbers, where);
  const auto put = [&](NDArray target, const NDArray& rows) {
    put_rows(target, {gradient.rows, rows}, where);
  };
  put(shard.arrays.parameters[row], arrays.parameters[0]);
  if (shard.masters()) put(shard.arrays.copies[row], arrays.copies[0]);
  for (size_t k = 0; k < state.size(); ++k) put(shard.state[k][row], state[k][0]);
}

void Optimizer::set_parts(const std::vector<Part>& parts, std::source_location where) {
  const NoGrad pause;
  Problems problems(name_);
  std::vector<size_t> part_of(parameters_.size(), 0);
  std::vector<int> priorities;
  for (size_t p = 0; p < parts.size(); ++p) {
    priorities.push_back(parts[p].priority);
    for (const size_t i : parts[p].parameters) {
      if (i >= part_of.size() || part_of[i] != 0) {
        problems.add("expected each of ", part_of.size(), " parameters in one part at most, got ", i,
                     " in part ", p, i < part_of.size() ? " again" : "");
        continue;
      }
      part_of[i] = p + 1;
    }
  }
  problems.raise(where);
  follow(where);
  part_of_ = std::move(part_of);
  part_priorities_ = std::move(priorities);
  renew_layout(where);
}

void Optimizer::zero_grad(bool in_place) {
  const NoGrad pause;
  unscaled_ = false;  // of gradients that are no more
  for (const NDArray& p : parameters_) {
    if (!p.requires_grad()) continue;
    NDArray g = p.grad();
    if (!g.defined()) continue;
    if (!in_place) {
      p.set_grad(NDArray());
    } else {
      // A gradient that is the result of recorded operations is detached from them: it becomes a constant 0.
      if (g.requires_grad()) p.set_grad(g = g.detach());
      g.fill_(0);
    }
  }
}

// Learning rates.

double Optimizer::learning_rate(size_t group) const { return this->group(group).lr; }

void Optimizer::check_rate(double rate) const {
  MX_CHECK(at_least_0(rate), InvalidArgument, "[", name_, "] expected a learning rate of at least 0",
           detail::and_finite(rate), ", got ", rate);
}

void Optimizer::set_learning_rate(double rate) {
  check_rate(rate);
  for (size_t g = 0; g < groups_.size(); ++g) set_rate(g, rate);
}

void Optimizer::set_learning_rate(double rate, size_t group) {
  this->group(group);  // throws if there is no such group
  check_rate(rate);
  set_rate(group, rate);
}

void Optimizer::set_rate(size_t group, double rate) {
  groups_[group].lr = rate;
  for (Shard& shard : layout_.shards)
    if (shard.group == group) shard.numbers.learning_rate.fill_(rate * groups_[group].multipliers.lr);
}

void Optimizer::sync_masters() {
  const NoGrad pause;
  follow(std::source_location::current());
  for (Shard& shard : layout_.shards)
    for (size_t i = 0; i < shard.arrays.copies.size(); ++i)
      shard.arrays.parameters[i].copy_from(shard.arrays.copies[i]);
}

}  // namespace mx::optim
