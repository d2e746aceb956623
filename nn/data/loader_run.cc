#include "nn/data/loader_run.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/host_list.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/launch.h"
#include "ndarray/part_range.h"

namespace mx::data {
namespace {

using mx::detail::ArrayImpl;

// Copies the first input. The second input only makes the operation wait.
void run_take_turn(const KernelArgs& args) { mx::kernels::copy(args.out[0], args.in[0]); }
const Kernel kTakeTurn = {"take_turn", run_take_turn};

EpochOrder order_of(const LoaderOptions& options, const OrderOptions& order, int64_t epoch) {
  if (options.sampler == nullptr) return EpochOrder(order, epoch);
  const std::vector<int64_t> all = options.sampler->order(epoch);
  MX_CHECK(static_cast<int64_t>(all.size()) == order.samples, InvalidArgument,
           "[Loader] expected a sampler that returns size() samples, ", order.samples, ", got ", all.size());
  return EpochOrder(order, all);
}

std::vector<std::vector<int64_t>> lists_of(const LoaderOptions& options, const OrderOptions& order,
                                           int64_t epoch) {
  if (options.batches == nullptr) return {};
  const std::vector<std::vector<int64_t>> all = options.batches->batches(epoch);
  MX_CHECK(static_cast<int64_t>(all.size()) == order.samples, InvalidArgument,
           "[Loader] expected a sampler that returns size() batches, ", order.samples, ", got ", all.size());
  const EpochOrder places(order, epoch);
  std::vector<std::vector<int64_t>> lists;
  for (int64_t i = 0; i < places.size(); ++i) lists.push_back(all[static_cast<size_t>(places.at(i))]);
  return lists;
}

}  // namespace

Loader::Run::Run(std::shared_ptr<const Core> core, int64_t epoch, int64_t position,
                 const std::source_location& where)
    : core_(std::move(core)),
      progress_(std::make_shared<Progress>(Progress{epoch, position})),
      order_(order_of(core_->options, core_->order, epoch)),
      lists_(lists_of(core_->options, core_->order, epoch)),
      pushed_(position),
      where_(where) {
  fill_queue();
}

void Loader::Run::fill_queue() {
  const auto most = static_cast<size_t>(core_->options.prefetch) + 1;
  for (; pushed_ < core_->batches && queue_.size() < most; ++pushed_)
    queue_.push_back(prepare(pushed_, in_turn_));
}

void Loader::Run::next() {
  while (!at_end_ && !step()) {
  }
}

// Returns false if no sample of the batch could be read, so that the next one takes its place.
bool Loader::Run::step() {
  in_turn_ = pushed_ < core_->batches && turn_.end(handed_out_);
  handed_out_.clear();
  current_ = Batch();
  fill_queue();
  if (queue_.empty()) {
    at_end_ = true;
    return true;
  }
  Prepared prepared = std::move(queue_.front());
  queue_.pop_front();
  ++progress_->delivered;
  if (prepared.error == nullptr && prepared.pending) finish(prepared);
  if (prepared.error != nullptr) std::rethrow_exception(prepared.error);
  if (prepared.batch.fields() == 0) return false;
  current_ = std::move(prepared.batch);
  for (size_t i = 0; i < current_.fields(); ++i) handed_out_.push_back(current_[i]);
  finish_what_is_ready();
  return true;
}

// Pushes the transforms and copies of later batches as soon as their shapes are known, so that they too run
// during the computation on this batch.
void Loader::Run::finish_what_is_ready() {
  for (Prepared& prepared : queue_)
    if (prepared.error == nullptr && prepared.pending && prepared.pending->is_ready()) finish(prepared);
}

std::vector<int64_t> Loader::Run::indices_of(int64_t number) const {
  const LoaderOptions& options = core_->options;
  const bool lists = options.batches != nullptr;
  const std::vector<int64_t>* const list = lists ? &lists_[static_cast<size_t>(number)] : nullptr;
  const int64_t begin = lists ? 0 : number * options.batch_size;
  const int64_t rows = lists ? static_cast<int64_t>(list->size())
                             : std::min(int64_t{options.batch_size}, core_->samples - begin);
  MX_CHECK(rows >= options.parts, InvalidArgument, "[Loader] expected batches of at least ",
           int64_t{options.parts}, " samples, one for each part, got one of ", rows, " from the sampler");
  const auto [from, to] = mx::detail::part_range(rows, options.part, options.parts);
  const int64_t first = begin + from;
  std::vector<int64_t> values = host_list<int64_t>(to - from, "Loader");
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t place = first + static_cast<int64_t>(i);
    values[i] = lists ? (*list)[static_cast<size_t>(place)] : order_.at(place);
    MX_CHECK(values[i] >= 0 && values[i] < core_->dataset->size(), InvalidArgument,
             "[Loader] expected samples from 0 to ", core_->dataset->size() - 1, ", got ", values[i],
             " from the sampler");
  }
  return values;
}

// Returns a copy of the indices that becomes available after the turn. So every operation that reads it waits
// for the turn.
NDArray Loader::Run::in_its_turn(const NDArray& indices) const {
  NDArray made = empty(indices.shape(), i64);
  ArrayImpl* const in[] = {&indices.impl(), &turn_.array().impl()};
  ArrayImpl* const out[] = {&made.impl()};
  launch({.kernel = &kTakeTurn, .inputs = in, .outputs = out, .fresh_outputs = 1});
  return made;
}

Loader::Run::Prepared Loader::Run::prepare(int64_t number, bool in_turn) const {
  Prepared prepared;
  prepared.number = number;
  try {
    std::vector<int64_t> values = indices_of(number);
    prepared.indices = array(values);
    prepared.pending = core_->dataset->start(
        Indices(std::move(values), in_turn ? in_its_turn(prepared.indices) : prepared.indices,
                core_->options.seed, progress_->epoch, where_));
  } catch (...) {
    prepared.error = std::current_exception();
  }
  if (prepared.pending && prepared.pending->is_ready()) finish(prepared);
  return prepared;
}

void Loader::Run::finish(Prepared& prepared) const {
  const LoaderOptions& options = core_->options;
  try {
    PendingBatch::Result result = prepared.pending->finish();
    prepared.pending.reset();
    std::vector<NDArray>& arrays = result.arrays;
    if (result.is_partial) {
      const int64_t* const all = prepared.indices.data<int64_t>();
      for (int64_t& place : result.kept) place = all[place];
      prepared.indices = array(result.kept);
      if (result.kept.empty()) return;
    }
    MX_CHECK(!arrays.empty(), InvalidArgument,
             "[Loader] expected at least one array from gather(), got none");
    for (const NDArray& array : arrays)
      MX_CHECK(array.defined() &&
                   (!result.is_regular || (array.rank() >= 1 && array.size(0) == prepared.indices.size(0))),
               InvalidArgument, "[Loader] expected arrays of ", prepared.indices.size(0),
               " samples from gather(), got ",
               array.defined() ? to_string(array.shape()) : "an empty handle");
    const SampleIds ids{prepared.indices, options.seed, progress_->epoch};
    if (!options.transform.empty()) arrays[0] = options.transform(arrays[0], ids);
    if (options.batch_transform != nullptr) arrays = options.batch_transform(std::move(arrays), ids);
    for (NDArray& array : arrays) array = array.to(options.context);
    prepared.batch =
        Batch(std::move(arrays), prepared.indices, progress_->epoch, prepared.number, core_->names);
  } catch (...) {
    prepared.pending.reset();
    prepared.error = std::current_exception();
  }
}

}  // namespace mx::data
