#include "nn/data/loader.h"

#include <utility>

#include "engine/base/check.h"
#include "engine/device/registry.h"
#include "ndarray/detail/place.h"
#include "nn/data/loader_run.h"

namespace mx::data {
namespace {

/// The largest epoch, such that the number of the next one does not overflow.
constexpr int64_t kMaxEpoch = INT64_MAX - 1;

void check_options(const DatasetHandle& dataset, const LoaderOptions& o) {
  MX_CHECK(dataset != nullptr, InvalidArgument, "[Loader] expected a data set, got an empty pointer");
  MX_CHECK(dataset->size() > 0, InvalidArgument,
           "[Loader] expected a data set with samples, got one of size ", dataset->size());
  MX_CHECK(o.batch_size > 0, InvalidArgument, "[Loader] expected a batch size above 0, got ", o.batch_size);
  MX_CHECK(o.prefetch >= 0, InvalidArgument, "[Loader] expected a prefetch of 0 batches or more, got ",
           o.prefetch);
  MX_CHECK(o.shards > 0 && o.shard >= 0 && o.shard < o.shards, InvalidArgument,
           "[Loader] expected a shard below the number of shards, got ", o.shard, " of ", o.shards);
  MX_CHECK(o.parts > 0 && o.part >= 0 && o.part < o.parts, InvalidArgument,
           "[Loader] expected a part below the number of parts, got ", o.part, " of ", o.parts);
  MX_CHECK(o.batches == nullptr || (o.sampler == nullptr && !o.shuffle && !o.drop_last && o.batch_size == 1),
           InvalidArgument, "[Loader] expected a sampler of batches alone, got one with another option that ",
           "forms batches (batch_size, shuffle, drop_last or sampler)");
  MX_CHECK(o.sampler == nullptr || !o.shuffle, InvalidArgument,
           "[Loader] expected either a sampler or shuffle, got both");
  MX_CHECK(o.sampler == nullptr || o.sampler->size() > 0, InvalidArgument,
           "[Loader] expected a sampler with samples, got one of size ", o.sampler->size());
  MX_CHECK(o.batches == nullptr || o.batches->size() > 0, InvalidArgument,
           "[Loader] expected a sampler with batches, got one of size ", o.batches->size());
  const int64_t needed = o.batches != nullptr   ? o.batches->samples_needed()
                         : o.sampler != nullptr ? o.sampler->samples_needed()
                                                : 0;
  MX_CHECK(needed <= dataset->size(), InvalidArgument, "[Loader] expected a sampler of samples from 0 to ",
           dataset->size() - 1, ", got one that takes sample ", needed - 1);
}

// The places of the epoch that shards divide: samples, or whole batches.
int64_t places_of(const DatasetHandle& dataset, const LoaderOptions& o) {
  if (o.batches != nullptr) return o.batches->size();
  return o.sampler != nullptr ? o.sampler->size() : dataset->size();
}

// Returns the number of samples in the shard's batches of epoch 0.
int64_t samples_in_batches(const BatchSampler& batches, const OrderOptions& order) {
  const std::vector<std::vector<int64_t>> all = batches.batches(0);
  int64_t samples = 0;
  for (int64_t place = 0; place < EpochOrder::shard_size(order); ++place)
    samples += static_cast<int64_t>(
        all[static_cast<size_t>((order.shard + place * order.shards) % order.samples)].size());
  return samples;
}

}  // namespace

Loader::Loader(DatasetHandle dataset, LoaderOptions options, std::source_location where) try {
  check_options(dataset, options);
  // Initialises the device now. Host memory allocated after that is page-locked, so copies to the device are
  // faster.
  get_device(options.context);
  const OrderOptions order{places_of(dataset, options), options.shuffle, options.seed, options.shard,
                           options.shards};
  const int64_t samples = EpochOrder::shard_size(order), size = options.batch_size;
  const int64_t batches = samples / size + (!options.drop_last && samples % size != 0 ? 1 : 0);
  MX_CHECK(batches > 0, InvalidArgument, "[Loader] expected a batch size of at most ", samples,
           ", the number of samples, with drop_last, got ", size);
  const int64_t last = options.drop_last || samples % size == 0 ? size : samples % size;
  MX_CHECK(options.batches != nullptr || last >= options.parts, InvalidArgument,
           "[Loader] expected batches of at least ", options.parts,
           " samples, one for each part, got a batch of ", last,
           last < size ? "; drop_last leaves out the last batch, which is not full" : "");
  const int64_t in_batches = options.drop_last ? samples - samples % size : samples;
  const int64_t in_epoch =
      options.batches == nullptr ? in_batches : samples_in_batches(*options.batches, order);
  auto names = std::make_shared<const std::vector<std::string>>(dataset->names());
  core_ = std::make_shared<const Core>(
      Core{std::move(dataset), std::move(options), order, in_epoch, batches, std::move(names)});
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;
Loader::~Loader() = default;

const Loader::Core& Loader::core() const {
  MX_CHECK(core_ != nullptr, InvalidState, "[Loader] expected a loader, got one that was moved from");
  return *core_;
}

Loader::Iterator Loader::begin(std::source_location where) try {
  core();
  MX_CHECK(next_epoch_ < kMaxEpoch, InvalidState, "[Loader] expected an epoch below ", kMaxEpoch, ", got ",
           next_epoch_);
  const auto run = std::make_shared<Run>(core_, next_epoch_, next_position_, where);
  progress_ = run->progress();
  ++next_epoch_;
  next_position_ = 0;
  run->advance();
  return Iterator(run);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

int64_t Loader::batches() const { return core().batches; }
int64_t Loader::samples() const { return core().samples; }
const LoaderOptions& Loader::options() const { return core().options; }

LoaderState Loader::state() const {
  const OrderOptions& order = core().order;
  LoaderState state;
  state.seed = order.seed;
  state.samples = order.samples;
  state.batch_size = core_->options.batch_size;
  state.shard = order.shard;
  state.shards = order.shards;
  state.shuffle = order.shuffle;
  state.drop_last = core_->options.drop_last;
  const bool inside = progress_ != nullptr && progress_->delivered < core_->batches;
  state.epoch = inside ? progress_->epoch : next_epoch_;
  state.position = inside ? progress_->delivered : next_position_;
  return state;
}

void Loader::restore(const LoaderState& state) {
  LoaderState same = Loader::state();
  same.epoch = state.epoch;
  same.position = state.position;
  MX_CHECK(state == same, InvalidArgument, "[Loader] expected the state of a loader of ", same.samples,
           " samples in batches of ", same.batch_size, ", shard ", same.shard, " of ", same.shards, ", seed ",
           same.seed, ", shuffle ", same.shuffle, ", drop_last ", same.drop_last, ", got one of ",
           state.samples, " samples in batches of ", state.batch_size, ", shard ", state.shard, " of ",
           state.shards, ", seed ", state.seed, ", shuffle ", state.shuffle, ", drop_last ", state.drop_last);
  MX_CHECK(
      state.epoch >= 0 && state.epoch <= kMaxEpoch && state.position >= 0 && state.position < core_->batches,
      InvalidArgument, "[Loader] expected a state at a batch from 0 to ", core_->batches - 1,
      " of an epoch from 0 to ", kMaxEpoch, ", got batch ", state.position, " of epoch ", state.epoch);
  progress_.reset();
  next_epoch_ = state.epoch;
  next_position_ = state.position;
}

}  // namespace mx::data
