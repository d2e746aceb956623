#include "nn/detail/choice.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "kvstore/key_check.h"

namespace mx::nn::detail {
namespace {

/// Returns, for each parameter of the optimiser, its index in the replica.
std::vector<size_t> places_in(const Parameters& replica, const optim::Optimizer& optimizer) {
  std::map<const void*, size_t> places;
  for (size_t i = 0; i < replica.size(); ++i) places.emplace(&replica[i].array().impl(), i);
  std::vector<size_t> result;
  for (const NamedParameter& parameter : optimizer.parameters()) {
    const auto found = places.find(&parameter.array().impl());
    MX_CHECK(
        found != places.end(), InvalidArgument,
        "[Trainer] expected an optimiser that holds only the replica's parameters, got one that also holds '",
        parameter.name, "'");
    result.push_back(found->second);
  }
  return result;
}

/// What this process has chosen for each parameter of the replica.
std::vector<std::string> texts_of(const Choice& choice, size_t parameters) {
  std::vector<std::string> texts(parameters, "in no group");
  for (const Choice::Member& member : choice.members)
    texts[member.place] = mx::detail::concat("in group ", member.group, ": ", choice.groups[member.group]);
  return texts;
}

/// Returns the rows of all processes; this one has the row `own`.
std::vector<int64_t> rows_of_all(KVStore& store, const std::string& key, const std::vector<int64_t>& own,
                                 std::source_location where) {
  std::vector<int64_t> rows(own.size() * static_cast<size_t>(store.size()));
  std::copy(own.begin(), own.end(), rows.begin() + static_cast<ptrdiff_t>(own.size()) * store.rank());
  const NDArray sum = array(rows);
  store.allreduce({key}, {sum}, {sum}, {.where = where});
  return sum.to_vector<int64_t>();
}

/// The ranks whose row has the number of rank 0 in a column, and the others.
struct Split {
  std::string same, other;
  Split(const std::vector<int64_t>& rows, size_t width, size_t column) {
    for (size_t at = column; at < rows.size(); at += width) {
      std::string& list = rows[at] == rows[column] ? same : other;
      list += (list.empty() ? "" : ", ") + std::to_string(at / width);
    }
  }
};

}  // namespace

Choice choice_of(const Parameters& replica, const optim::Optimizer* optimizer) {
  MX_CHECK(optimizer != nullptr, InvalidArgument, "[Trainer] expected an optimiser, got an empty pointer");
  Choice choice;
  for (size_t g = 0; g < optimizer->groups(); ++g) {
    std::string text = optimizer->name();
    for (const auto& [name, value] : optimizer->option_map(g))
      text += mx::detail::concat(", ", name, " = ", mx::to_string(value));
    const optim::Multipliers& factors = optimizer->multipliers(g);
    const std::pair<const char*, double> numbers[] = {
        {"learning rate now", optimizer->learning_rate(g)},
        {"multiplier of the learning rate", factors.lr},
        {"multiplier of the weight decay", factors.weight_decay}};
    for (const auto& [name, number] : numbers)
      text += mx::detail::concat(", ", name, " = ", mx::to_string(AttrValue(number)));
    choice.groups.push_back(std::move(text));
  }
  const std::vector<size_t> places = places_in(replica, *optimizer);
  for (size_t k = 0; k < places.size(); ++k)
    choice.members.push_back({places[k], optimizer->group_of(k), optimizer->parameters()[k].name});
  return choice;
}

void check_not_empty(const optim::Optimizer& optimizer, const Parameters& replica) {
  const bool trains = std::any_of(replica.begin(), replica.end(),
                                  [](const NamedParameter& parameter) { return parameter.requires_grad(); });
  MX_CHECK(!trains || !optimizer.parameters().empty(), InvalidArgument,
           "[Trainer] expected an optimiser with parameters, because the model has parameters that require "
           "gradients, got one without any");
}

void check_same_choice(const Choice& whole, const Choice& portions) {
  constexpr const char* kExpected =
      "[Trainer] expected a function that chooses the same of the portions of parameters as of the "
      "parameters, because the optimiser is sharded, got ";
  constexpr const char* kAdvice =
      "; choose parameters by name, because the portions are flat and have other sizes in each process";
  const auto text = [](const Choice& choice, size_t k) {
    if (k >= choice.members.size()) return std::string("no parameter");
    return mx::detail::concat("'", choice.members[k].name, "' in group ", choice.members[k].group);
  };
  const size_t count = std::max(whole.members.size(), portions.members.size());
  for (size_t k = 0; k < count; ++k) {
    const bool same =
        k < whole.members.size() && k < portions.members.size() && whole.members[k] == portions.members[k];
    MX_CHECK(same, InvalidArgument, kExpected, text(portions, k), " of the portions and ", text(whole, k),
             " of the parameters as number ", k, kAdvice);
  }
  MX_CHECK(whole.groups.size() == portions.groups.size(), InvalidArgument, kExpected, portions.groups.size(),
           " groups of portions and ", whole.groups.size(), " groups of parameters", kAdvice);
  for (size_t g = 0; g < whole.groups.size(); ++g)
    MX_CHECK(whole.groups[g] == portions.groups[g], InvalidArgument, kExpected, "group ", g, " as ",
             portions.groups[g], " of the portions and as ", whole.groups[g], " of the parameters", kAdvice);
}

void compare_choices(KVStore& store, const std::string& prefix, const Choice* choice,
                     const Parameters& replica, std::source_location where) {
  const size_t count = replica.size();
  std::vector<std::string> texts;
  std::vector<int64_t> hashes;
  if (choice != nullptr) texts = texts_of(*choice, count);
  for (const std::string& text : texts)
    hashes.push_back(static_cast<int64_t>(mx::detail::hash_bytes(text.data(), text.size())));
  // First a summary, which has one size whatever models the processes have.
  enum Column : size_t { kFailed, kParameters, kHash, kColumns };
  std::vector<int64_t> summary(kColumns);
  summary[kFailed] = choice == nullptr ? 1 : 0;
  summary[kParameters] = static_cast<int64_t>(count);
  summary[kHash] =
      static_cast<int64_t>(mx::detail::hash_bytes(hashes.data(), hashes.size() * sizeof(int64_t)));
  const std::string key = prefix + "choice of the optimiser";
  const std::vector<int64_t> all = rows_of_all(store, key, summary, where);
  std::string failed;
  for (size_t r = 0; r * kColumns < all.size(); ++r)
    if (all[r * kColumns + kFailed] != 0) failed += (failed.empty() ? "" : ", ") + std::to_string(r);
  if (choice == nullptr) return;  // this process has an error of its own
  MX_CHECK(failed.empty(), ProtocolError,
           "[Trainer] expected an optimiser in all processes, got an error where it is made on rank(s) ",
           failed);
  if (Split(all, kColumns, kHash).other.empty()) return;
  // The models differ, too, which is said when the parameters of rank 0 are copied.
  if (!Split(all, kColumns, kParameters).other.empty()) return;
  const std::vector<int64_t> details = rows_of_all(store, key + " of each parameter", hashes, where);
  for (size_t i = 0; i < count; ++i) {
    const Split ranks(details, count, i);
    MX_CHECK(ranks.other.empty(), ProtocolError,
             "[Trainer] expected the same optimiser in all processes, got another choice for parameter ", i,
             " '", replica[i].name, "' on rank(s) ", ranks.other, " than on rank(s) ", ranks.same,
             "; on this rank, ", store.rank(), ", it is ", texts[i]);
  }
}

}  // namespace mx::nn::detail
