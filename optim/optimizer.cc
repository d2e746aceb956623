#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "ndarray/hooks.h"
#include "optim/detail/gradient_factor.h"
#include "optim/detail/problems.h"

namespace mx::optim {

using detail::describe;
using detail::Problems;

namespace {

bool valid_factor(double factor) { return factor >= 0 && std::isfinite(factor); }

/// Results of recorded operations never have a gradient of their own.
bool is_result(const NDArray& array) {
  return array.requires_grad() && mx::detail::hooks().is_leaf != nullptr &&
         !mx::detail::hooks().is_leaf(array);
}

/// Names those that share memory: they would be changed twice in a step, or by two threads at once.
void check_distinct(Problems& problems, const std::vector<NDArray>& arrays,
                    const std::vector<std::string>& names) {
  std::vector<std::tuple<const Storage*, int64_t, int64_t, size_t>> ranges;  // first and last byte
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i].defined() || arrays[i].numel() == 0) continue;
    const auto range = mx::detail::byte_range(arrays[i].impl());
    ranges.emplace_back(arrays[i].impl().storage.get(), range.first, range.last, i);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    const auto& [storage_a, first_a, last_a, a] = ranges[i - 1];
    const auto& [storage_b, first_b, last_b, b] = ranges[i];
    if (storage_a == storage_b && first_b < last_a)
      problems.add("expected each parameter once, got '", names[std::min(a, b)], "' and '",
                   names[std::max(a, b)], "' in the same memory");
  }
}

}  // namespace

Parameters::Parameters(const NamedArrays& arrays) {
  for (const auto& [name, array] : arrays) {
    names_.push_back(name);
    arrays_.push_back(array);
  }
}

Optimizer::~Optimizer() = default;

void Optimizer::check_parameters(const Parameters& parameters, const std::vector<std::string>& names,
                                 const Group& group, std::source_location where) const {
  Problems problems(name_);
  for (size_t i = 0; i < parameters.arrays().size(); ++i) {
    const NDArray& p = parameters.arrays()[i];
    const std::string& name = names[parameters_.size() + i];
    if (!p.defined() || !is_floating(p.dtype()) || !p.contiguous())
      problems.add("expected parameter '", name, "' contiguous, in floating point, got ", describe(p),
                   p.defined() && !p.contiguous() ? " with gaps" : "");
    else if (is_result(p))
      problems.add("expected parameter '", name, "' not to be the result of a recorded operation, got one, ",
                   describe(p));
  }
  std::vector<NDArray> all = parameters_;
  all.insert(all.end(), parameters.arrays().begin(), parameters.arrays().end());
  check_distinct(problems, all, names);
  std::map<std::string, size_t> uses;
  for (const std::string& name : names)
    if (++uses[name] == 2) problems.add("expected each name once, got more parameters named '", name, "'");
  if (!valid_factor(group.multipliers.lr) || !valid_factor(group.multipliers.weight_decay))
    problems.add("expected multipliers of at least 0, got lr ", group.multipliers.lr, " and weight_decay ",
                 group.multipliers.weight_decay);
  if (group.max_norm > 0 && max_norm_ > 0 && group.max_norm != max_norm_)
    problems.add("expected max_norm as in the other groups, since it limits all together, ", max_norm_,
                 ", or 0, got ", group.max_norm);
  problems.raise(where);
}

void Optimizer::add(const Parameters& parameters, const Group& group, std::source_location where) {
  const NoGrad pause;
  std::vector<std::string> names = names_;
  for (size_t i = 0; i < parameters.arrays().size(); ++i)
    names.push_back(parameters.names().empty() ? std::to_string(names.size()) : parameters.names()[i]);
  check_parameters(parameters, names, group, where);

  std::vector<Shard> shards;  // that this group adds
  std::vector<Place> places;
  for (const NDArray& p : parameters.arrays()) {
    auto shard = std::find_if(shards.begin(), shards.end(), [&](const Shard& s) {
      const NDArray& other = s.masters() ? s.arrays.copies[0] : s.arrays.parameters[0];
      return other.context() == p.context() && other.dtype() == p.dtype();
    });
    if (shard == shards.end()) {
      shard = shards.insert(shards.end(), Shard{});
      shard->group = groups_.size();
      shard->numbers.learning_rate = full({}, group.lr * group.multipliers.lr, f64, p.context());
      shard->state.resize(group.state.size());
    }
    places.push_back({shards_.size() + static_cast<size_t>(shard - shards.begin()), shard->members.size()});
    shard->members.push_back(parameters_.size() + places.size() - 1);
    const bool half = p.dtype() != f32 && p.dtype() != f64;
    shard->arrays.parameters.push_back(half ? p.to(f32, where) : p);
    if (half) shard->arrays.copies.push_back(p);
    for (auto& list : shard->state) list.push_back(zeros_like(shard->arrays.parameters.back()));
  }
  if (group.counts)
    for (Shard& shard : shards)
      shard.numbers.counts =
          zeros({static_cast<int64_t>(shard.members.size())}, f64, shard.arrays.parameters[0].context());

  groups_.push_back(group);
  max_norm_ = std::max(max_norm_, group.max_norm);
  parameters_.insert(parameters_.end(), parameters.arrays().begin(), parameters.arrays().end());
  names_ = std::move(names);
  places_.insert(places_.end(), places.begin(), places.end());
  std::move(shards.begin(), shards.end(), std::back_inserter(shards_));
}

void Optimizer::check_gradients(const std::vector<NDArray>& gradients, std::source_location where) const {
  Problems problems(name_);
  problems.expect(gradients.size() == parameters_.size(), "expected a gradient for each of ",
                  parameters_.size(), " parameters, got ", gradients.size());
  problems.raise(where);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const NDArray &g = gradients[i], &p = parameters_[i];
    if (g.defined() && (g.shape() != p.shape() || !is_floating(g.dtype()) || g.context() != p.context()))
      problems.add("expected the gradient of '", names_[i], "' in floating point like its parameter, ",
                   describe(p), ", got ", describe(g));
  }
  problems.raise(where);
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
           parameters_.size(), " (called at ", where.file_name(), ':', where.line(), ')');
  step(gradients, where);
}

void Optimizer::step(const std::vector<NDArray>& gradients, std::source_location where) {
  const NoGrad pause;
  check_gradients(gradients, where);
  const detail::GradientFactor factor =
      detail::gradient_factor(gradients, max_norm_, loss_scale_ ? &*loss_scale_ : nullptr, where);
  norm_ = factor.norm;
  for (Shard& shard : shards_) {
    struct LetGo {  // gradients take as much memory as the parameters
      Shard& shard;
      ~LetGo() {
        shard.arrays.gradients.clear();
        shard.numbers.scale = shard.numbers.skip = NDArray();
      }
    } const let_go{shard};
    for (size_t member : shard.members) shard.arrays.gradients.push_back(gradients[member]);
    shard.numbers.scale = factor.scale;
    shard.numbers.skip = factor.skip;
    update(shard.group, shard.arrays, shard.state, shard.numbers, where);
  }
}

void Optimizer::zero_grad(bool in_place) {
  const NoGrad pause;
  for (const NDArray& p : parameters_) {
    if (!p.requires_grad()) continue;
    NDArray g = p.grad();
    if (!g.defined()) continue;
    if (!in_place) {
      p.set_grad(NDArray());
    } else {
      // One that is the result of recorded operations is zero from now on, whatever they were.
      if (g.requires_grad()) p.set_grad(g = g.detach());
      g.fill_(0);
    }
  }
}

double Optimizer::learning_rate(size_t group) const {
  MX_CHECK(group < groups_.size(), InvalidArgument, "[", name_, "] expected a group below ", groups_.size(),
           ", got ", group);
  return groups_[group].lr;
}

void Optimizer::check_rate(double rate) const {
  MX_CHECK(valid_factor(rate), InvalidArgument, "[", name_, "] expected a learning rate of at least 0, got ",
           rate);
}

void Optimizer::set_learning_rate(double rate) {
  check_rate(rate);
  for (size_t g = 0; g < groups_.size(); ++g) set_rate(g, rate);
}

void Optimizer::set_learning_rate(double rate, size_t group) {
  learning_rate(group);  // (is there such a group?)
  check_rate(rate);
  set_rate(group, rate);
}

void Optimizer::set_rate(size_t group, double rate) {
  groups_[group].lr = rate;
  for (Shard& shard : shards_)
    if (shard.group == group) shard.numbers.learning_rate.fill_(rate * groups_[group].multipliers.lr);
}

void Optimizer::sync_masters() {
  const NoGrad pause;
  for (Shard& shard : shards_)
    for (size_t i = 0; i < shard.arrays.copies.size(); ++i)
      shard.arrays.parameters[i].copy_from(shard.arrays.copies[i]);
}

}  // namespace mx::optim
