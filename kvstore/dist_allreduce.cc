#include "kvstore/dist_allreduce.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "comm/deadline.h"
#include "engine/base/check.h"
#include "kvstore/call_check.h"
#include "kvstore/collective_op.h"
#include "kvstore/key_check.h"
#include "kvstore/sum.h"
#include "ndarray/grad_mode.h"

namespace mx::detail {
namespace {

std::vector<std::string> names_of(const std::vector<KVKey>& keys) {
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const KVKey& key : keys) names.push_back(key.name());
  return names;
}

/// Keys that are sent as one message: [begin, end).
struct MessageRange {
  size_t begin, end;
};

/// Cuts the list into messages: consecutive values of one type, together at most `fuse_bytes`. The list is
/// equal on all ranks, so the messages are too.
std::vector<MessageRange> messages_of(const std::vector<NDArray>& values, int64_t fuse_bytes) {
  std::vector<MessageRange> messages;
  size_t bytes = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t own = values[i].bytes();
    const bool fits = !messages.empty() && values[i].dtype() == values[i - 1].dtype() &&
                      bytes + own <= static_cast<size_t>(std::max<int64_t>(fuse_bytes, 0));
    if (fits) {
      messages.back().end = i + 1;
      bytes += own;
    } else {
      messages.push_back({i, i + 1});
      bytes = own;
    }
  }
  return messages;
}

std::string name_of(const std::vector<std::string>& keys, MessageRange range) {
  if (range.end == range.begin + 1) return keys[range.begin];
  return concat(keys[range.begin], " to ", keys[range.end - 1], " (", range.end - range.begin, " keys)");
}

/// Describes what the values of a message are divided by, which must be the same on all ranks: of how many
/// values of each rank a mean is taken, and for how many keys in a row. Empty for sums.
std::string describe_divisors(const std::vector<KVStore::Values>& values, MessageRange range,
                              const KVOptions& options) {
  if (options.reduce != KVReduce::mean) return {};
  std::string text = ", mean of ";
  for (size_t i = range.begin, next = i; i < range.end; i = next) {
    const size_t count = values[i].list().size();
    while (next < range.end && values[next].list().size() == count) ++next;
    const bool all = next - i == range.end - range.begin;
    text += concat(i == range.begin ? "" : ", ", count,
                   all ? "" : concat(" for ", next - i, next - i == 1 ? " key" : " keys"));
  }
  return text + " of each rank";
}

/// Parts of a flat buffer, each with the shape of one array.
std::vector<NDArray> parts_of(const NDArray& buffer, const std::vector<NDArray>& like, MessageRange range) {
  std::vector<NDArray> parts;
  int64_t at = 0;
  for (size_t i = range.begin; i < range.end; ++i) {
    const int64_t count = like[i].numel();
    parts.push_back(buffer.slice(0, mx::Slice{at, at + count}).reshape(like[i].shape()));
    at += count;
  }
  return parts;
}

CallOrder call_order(KVOrder order) {
  return order == KVOrder::priority ? CallOrder::priority : CallOrder::program;
}

int64_t elements_of(const std::vector<NDArray>& arrays, MessageRange range) {
  int64_t count = 0;
  for (size_t i = range.begin; i < range.end; ++i) count += arrays[i].numel();
  return count;
}

}  // namespace

DistAllreduce::DistAllreduce(std::string type, std::shared_ptr<comm::Communicator> group, SumPlace place,
                             const KVStoreOptions& options, int64_t epoch)
    : type_(std::move(type)),
      group_(std::move(group)),
      place_(place),
      options_(options),
      epoch_(epoch),
      sequence_(std::make_shared<CallSequence>(group_, options.bytes_in_flight, call_order(options.order))),
      gate_(std::make_shared<DeviceGate>(group_->device())) {
  // Ranks that differ would make other calls than the others from here on.
  compare_settings("KVStore",
                   concat("order = ", options.order == KVOrder::priority ? "priority" : "program"));
}

Context DistAllreduce::place_of(const NDArray& value) const {
  return place_ == SumPlace::devices && value.context().kind == gate_->context().kind ? gate_->context()
                                                                                      : cpu();
}

comm::CallOptions DistAllreduce::call_options(const std::string& what, const KVOptions& options) const {
  return {
      .timeout_ms = comm::limited_timeout(options.timeout_ms > 0 ? options.timeout_ms : options_.timeout_ms),
      .order = options_.any_order ? comm::Order::any : comm::Order::rank,
      .what = what};
}

void DistAllreduce::compare_new_keys(const char* op, const std::vector<std::string>& keys,
                                     std::span<const NDArray> values, const KVOptions& options) {
  if (size() == 1) return;
  std::vector<std::string> lines;
  std::string changed;  // the first key that was known in another form
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string line =
        describe_key(keys[i], concat(values[i].dtype()).c_str(), concat(values[i].shape()));
    std::string& known = known_[keys[i]];
    if (known == line) continue;
    if (!known.empty() && changed.empty()) changed = ", of which this one has changed: " + line;
    lines.push_back(known = line);
  }
  if (lines.empty()) return;
  CallSequence::Call call =
      compare_lines(op, std::move(lines), call_options("comparison of keys" + changed, options));
  call.done = [](const std::exception_ptr&) {};  // an error fails the calls that follow
  sequence_->take("comparison of keys").start(std::move(call));
}

/// Compares what a call sets between all ranks. They update their copies alone, and must do the same.
void DistAllreduce::compare_settings(const char* op, const std::string& line) {
  if (size() == 1) return;
  CallSequence::Call call = compare_lines(op, {line}, call_options(op, {}));
  call.done = [](const std::exception_ptr&) {};  // an error fails the calls that follow
  sequence_->take(op).start(std::move(call));
}

NDArray DistAllreduce::local_sum(const Values& values, const KVOptions& options) const {
  const std::vector<NDArray>& list = values.list();
  const Context home = place_ == SumPlace::host ? cpu() : list[0].context();
  return sum_values(list, home, sum_type(list, options.accumulate_f32), options.where)
      .to(place_of(list[0]), options.where)
      .to_contiguous(options.where);
}

NDArray DistAllreduce::sum_message(const Exchange& exchange, const std::string& what, const NDArray& value,
                                   NDArray out) {
  push_collective(*sequence_, gate_,
                  {.name = exchange.op,
                   .what = what,
                   .reads = {value},
                   .writes = {out},
                   .priority = engine_priority(exchange.options.priority),
                   .where = exchange.options.where,
                   .call = [value, out, options = call_options(what, exchange.options),
                            cut = options_.cut_bytes](Stream* stream) {
                     const comm::Request whole{.collective = comm::Collective::allreduce,
                                               .in = memory_of(value, stream),
                                               .out = memory_of(out, stream),
                                               .count = static_cast<size_t>(value.numel()),
                                               .type = comm_type(value.dtype()),
                                               .options = options,
                                               .done = {}};
                     return CallSequence::Call{.requests = cut_request(whole, cut), .bytes = value.bytes()};
                   }});
  return out;
}

std::vector<NDArray> DistAllreduce::sum_over_ranks(Exchange& exchange) {
  if (size() == 1) return exchange.values;
  std::vector<NDArray> sums(exchange.keys.size());
  for (const MessageRange range : messages_of(exchange.values, options_.fuse_bytes)) {
    const std::string what =
        name_of(exchange.keys, range) + describe_divisors(exchange.lists, range, exchange.options);
    const DType type = exchange.values[range.begin].dtype();
    if (range.end == range.begin + 1) {
      const NDArray& value = exchange.values[range.begin];
      NDArray out = exchange.targets.empty() ? NDArray() : exchange.targets[range.begin];
      const bool usable = out.defined() && out.context() == value.context() && out.contiguous() &&
                          out.dtype() == type && !out.requires_grad() &&
                          (&out.impl() == &value.impl() || !out.shares_memory(value));
      if (!usable) out = empty(value.shape(), type, value.context());
      sums[range.begin] = sum_message(exchange, what, value, out);
      continue;
    }
    const NDArray buffer =
        empty({elements_of(exchange.values, range)}, type, exchange.values[range.begin].context());
    std::vector<NDArray> parts = parts_of(buffer, exchange.values, range);
    for (size_t i = range.begin; i < range.end; ++i)
      parts[i - range.begin].copy_from(exchange.values[i], exchange.options.where);
    sum_message(exchange, what, buffer, buffer);
    for (size_t i = range.begin; i < range.end; ++i) sums[i] = parts[i - range.begin];
  }
  return sums;
}

void DistAllreduce::allreduce(const std::vector<KVKey>& keys, const std::vector<Values>& values,
                              const std::vector<NDArray>& outs, const KVOptions& options) {
  check_allreduce(keys, values, outs, options);
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  Exchange exchange{.op = "allreduce",
                    .keys = names_of(keys),
                    .lists = values,
                    .values = {},
                    .targets = {},
                    .options = options};
  for (const Values& list : values) exchange.values.push_back(local_sum(list, options));
  if (options.reduce == KVReduce::sum) exchange.targets = outs;
  compare_new_keys("allreduce", exchange.keys, exchange.values, options);
  const std::vector<NDArray> sums = sum_over_ranks(exchange);
  for (size_t i = 0; i < keys.size(); ++i) {
    NDArray out = outs[i], sum = sums[i];
    if (options.reduce == KVReduce::mean)
      sum =
          mean_of(sum, static_cast<int64_t>(values[i].list().size()) * size(), keys[i].name(), options.where);
    if (&sum.impl() != &out.impl()) out.copy_from(sum, options.where);
  }
}

void DistAllreduce::push(const KVKey& key, const Values& values, const KVOptions& options) {
  pushpull({key}, {values}, {Values(std::vector<NDArray>())}, options);
}

void DistAllreduce::pushpull(const std::vector<KVKey>& keys, const std::vector<Values>& values,
                             const std::vector<Values>& outs, const KVOptions& options) {
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  check_pushpull(keys, values, outs, options,
                 [&](const std::string& key) { return table_.at(key, "push").stored.shape(); });
  Exchange exchange{
      .op = "push", .keys = names_of(keys), .lists = values, .values = {}, .targets = {}, .options = options};
  for (const Values& list : values) exchange.values.push_back(local_sum(list, options));
  compare_new_keys("push", exchange.keys, exchange.values, options);
  const std::vector<NDArray> sums = sum_over_ranks(exchange);
  for (size_t i = 0; i < keys.size(); ++i) {
    NDArray sum = sums[i];
    const std::string& key = keys[i].name();
    if (options.reduce == KVReduce::mean)
      sum = mean_of(sum, static_cast<int64_t>(values[i].list().size()) * size(), key, options.where);
    StoreTable::Entry& entry = table_.at(key, "push");
    sum = sum.to(entry.stored.context(), options.where);
    table_.apply(key, entry, sum.to(sum_type(sum.dtype()), options.where), options.where);
    if (!outs[i].list().empty()) table_.pull(key, outs[i], options.where);
  }
}

void DistAllreduce::pull(const KVKey& key, const Values& outs, const KVOptions& options) {
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  table_.pull(key.name(), outs, options.where);
}

void DistAllreduce::row_sparse_pull(const KVKey& key, const NDArray& rows, const Values& outs,
                                    const KVOptions& options) {
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  table_.pull_rows(key.name(), rows, outs, options.where);
}

void DistAllreduce::broadcast_message(const std::string& what, const NDArray& buffer,
                                      const KVOptions& options) {
  CollectiveOp op{
      .name = "broadcast",
      .what = what,
      .priority = engine_priority(options.priority),
      .where = options.where,
      .call = [buffer, call = call_options(what, options), cut = options_.cut_bytes](Stream* stream) {
        void* const memory = memory_of(buffer, stream);
        const comm::Request whole{.collective = comm::Collective::broadcast,
                                  .in = memory,
                                  .out = memory,
                                  .count = static_cast<size_t>(buffer.numel()),
                                  .type = comm_type(buffer.dtype()),
                                  .options = call,
                                  .done = {}};
        return CallSequence::Call{.requests = cut_request(whole, cut), .bytes = buffer.bytes()};
      }};
  if (rank() == 0) op.reads.push_back(buffer);
  op.writes.push_back(buffer);  // also on rank 0, where the bytes stay: an error must be found there, too
  push_collective(*sequence_, gate_, std::move(op));
}

void DistAllreduce::broadcast_all(const char* op, const std::vector<std::string>& keys,
                                  const std::vector<NDArray>& arrays, const KVOptions& options,
                                  bool fails_on_first) {
  compare_new_keys(op, keys, arrays, options);
  if (size() == 1) return;
  for (const MessageRange range : messages_of(arrays, options_.fuse_bytes)) {
    const NDArray& first = arrays[range.begin];
    const NDArray buffer = empty({elements_of(arrays, range)}, first.dtype(), place_of(first));
    std::vector<NDArray> parts = parts_of(buffer, arrays, range);
    if (rank() == 0)
      for (size_t i = range.begin; i < range.end; ++i)
        parts[i - range.begin].copy_from(arrays[i], options.where);
    broadcast_message(name_of(keys, range), buffer, options);
    for (size_t i = range.begin; i < range.end; ++i) {
      if (rank() > 0) {
        NDArray(arrays[i]).copy_from(parts[i - range.begin], options.where);
      } else if (fails_on_first) {  // the value stays, but has the error of the broadcast
        current_engine().push([] {}, {.reads = {buffer.var()}, .updates = {arrays[i].var()}, .name = op},
                              options.where);
      }
    }
  }
}

void DistAllreduce::broadcast_from_first(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                                         const KVOptions& options) {
  check_broadcast_from_first(keys, values);
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  broadcast_all("broadcast_from_first", names_of(keys), values, options);
}

void DistAllreduce::init_all(const char* op, const std::vector<std::string>& keys,
                             const std::vector<NDArray>& values, std::source_location where) {
  std::vector<NDArray> stored;
  for (size_t i = 0; i < keys.size(); ++i) {
    table_.check_new(keys[i]);
    for (size_t k = 0; k < i; ++k)
      MX_CHECK(keys[k] != keys[i], InvalidArgument, "[", op, "] expected each key once, got \"", keys[i],
               "\" twice");
  }
  for (const NDArray& value : values) {
    stored.push_back(empty(value.shape(), sum_type(value.dtype())));
    stored.back().copy_from(value, where);
  }
  broadcast_all(op, keys, stored, {.where = where}, true);
  for (size_t i = 0; i < keys.size(); ++i) table_.add(keys[i], stored[i]);
}

void DistAllreduce::init(const KVKey& key, const NDArray& value, std::source_location where) {
  const NoGrad pause;
  const std::lock_guard lock(mutex_);
  init_all("init", {key.name()}, {value}, where);
}

void DistAllreduce::broadcast(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                              const std::vector<Values>& outs, const KVOptions& options) {
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  check_broadcast(keys, values, outs);
  init_all("broadcast", names_of(keys), values, options.where);
  for (size_t i = 0; i < keys.size(); ++i) table_.pull(keys[i].name(), outs[i], options.where);
}

void DistAllreduce::erase(const KVKey& key, std::source_location) {
  const std::lock_guard lock(mutex_);
  table_.at(key.name(), "erase");
  table_.erase(key.name());
}

void DistAllreduce::set_updater(Updater updater) {
  const std::lock_guard lock(mutex_);
  table_.set_updater(std::move(updater));
}

void DistAllreduce::set_optimizer(const std::string& name, const AttrMap& options,
                                  std::source_location where) {
  const std::lock_guard lock(mutex_);
  table_.set_optimizer(name, options, where);
  std::string line = concat("the optimiser '", name, "' with");
  for (const auto& [option, value] : options) line += concat(' ', option, " = ", mx::to_string(value));
  compare_settings("set_optimizer", line);
}

void DistAllreduce::set_optimizer_option(const std::string& option, double value,
                                         std::source_location where) {
  const std::lock_guard lock(mutex_);
  table_.set_optimizer_option(option, value, where);
  compare_settings("set_optimizer_option", concat(option, " = ", mx::to_string(AttrValue(value))));
}

}  // namespace mx::detail
