#include "nn/data/loader_run.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/detail/push_on.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/launch.h"

namespace mx::data {
namespace {

using mx::detail::ArrayImpl;
using mx::detail::ArrayUse;
using mx::detail::PushedArrays;
using mx::detail::Touch;

// Copies the first input. The second input only makes the operation wait.
void run_take_turn(const KernelArgs& args) { mx::kernels::copy(args.out[0], args.in[0]); }
const Kernel kTakeTurn = {"take_turn", run_take_turn};

}  // namespace

Loader::Run::Run(std::shared_ptr<const Core> core, int64_t epoch, int64_t position)
    : core_(std::move(core)),
      progress_(std::make_shared<Progress>(Progress{epoch, position})),
      order_(core_->order, epoch),
      pushed_(position),
      turn_(empty({1}, u8)) {
  fill_queue();
}

void Loader::Run::fill_queue() {
  const auto most = static_cast<size_t>(core_->options.prefetch) + 1;
  for (; pushed_ < core_->batches && queue_.size() < most; ++pushed_)
    queue_.push_back(prepare(pushed_, in_turn_));
}

// Called when the program's operations on the last batch have been pushed. Pushes operations that update
// turn_ when those have ended. Returns false if none of them is left, so that a later batch need not wait.
//
// Each pushed operation updates the variable of one array of the batch, so it runs after all operations on
// that array; it changes no value. If the array is poisoned, the engine skips the update and poisons turn_
// too. turn_ is recovered, so that the error does not reach later batches. Each array has its own update, so
// that a poisoned array does not skip the wait for the others.
bool Loader::Run::end_turn() {
  Engine& engine = current_engine();
  bool busy = false;
  for (const NDArray& array : handed_out_) {
    ArrayImpl& impl = array.impl();
    if (impl.storage->on_cpu() && impl.storage->quiet()) continue;
    const ArrayUse uses[] = {{&impl, Touch::update}, {&turn_.impl(), Touch::update}};
    mx::detail::push_on(
        engine, uses, [](const RunContext&, PushedArrays&) {}, {.name = "end_turn"},
        std::source_location::current());
    engine.recover(turn_.var());
    busy = true;
  }
  return busy;
}

void Loader::Run::next() {
  if (at_end_) return;
  in_turn_ = pushed_ < core_->batches && end_turn();
  handed_out_.clear();
  current_ = Batch();
  fill_queue();
  if (queue_.empty()) {
    at_end_ = true;
    return;
  }
  Prepared prepared = std::move(queue_.front());
  queue_.pop_front();
  ++progress_->delivered;
  if (prepared.error != nullptr) std::rethrow_exception(prepared.error);
  current_ = std::move(prepared.batch);
  for (size_t i = 0; i < current_.fields(); ++i) handed_out_.push_back(current_[i]);
}

NDArray Loader::Run::indices_of(int64_t number) const {
  const LoaderOptions& options = core_->options;
  const int64_t begin = number * options.batch_size;
  const int64_t rows = std::min(int64_t{options.batch_size}, core_->samples - begin);
  // The first rows % parts parts have one row more.
  const int64_t each = rows / options.parts, more = rows % options.parts;
  const int64_t first = begin + options.part * each + std::min(int64_t{options.part}, more);
  std::vector<int64_t> values(static_cast<size_t>(each + (options.part < more ? 1 : 0)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = order_.at(first + static_cast<int64_t>(i));
  return array(values);
}

// Returns a copy of the indices that becomes available after the turn. So every operation that reads it waits
// for the turn.
NDArray Loader::Run::in_its_turn(const NDArray& indices) const {
  NDArray made = empty(indices.shape(), i64);
  ArrayImpl* const in[] = {&indices.impl(), &turn_.impl()};
  ArrayImpl* const out[] = {&made.impl()};
  launch({.kernel = &kTakeTurn, .inputs = in, .outputs = out, .fresh_outputs = 1});
  return made;
}

Loader::Run::Prepared Loader::Run::prepare(int64_t number, bool in_turn) const {
  Prepared prepared;
  try {
    const LoaderOptions& options = core_->options;
    const NDArray indices = indices_of(number);
    std::vector<NDArray> arrays = core_->dataset->gather(in_turn ? in_its_turn(indices) : indices);
    MX_CHECK(!arrays.empty(), InvalidArgument,
             "[Loader] expected at least one array from gather(), got none");
    for (const NDArray& array : arrays)
      MX_CHECK(array.defined() && array.rank() >= 1 && array.size(0) == indices.size(0), InvalidArgument,
               "[Loader] expected arrays of ", indices.size(0), " samples from gather(), got ",
               array.defined() ? to_string(array.shape()) : "an empty handle");
    if (!options.transform.empty())
      arrays[0] = options.transform(arrays[0], {indices, options.seed, progress_->epoch});
    for (NDArray& array : arrays) array = array.to(options.context);
    prepared.batch = Batch(std::move(arrays), indices, progress_->epoch, number);
  } catch (...) {
    prepared.error = std::current_exception();
  }
  return prepared;
}

}  // namespace mx::data
