#include <algorithm>
#include <deque>
#include <exception>
#include <source_location>
#include <utility>

#include "engine/base/check.h"
#include "engine/device/registry.h"
#include "ndarray/detail/place.h"
#include "ndarray/io/io_error.h"
#include "ndarray/kernels/parallel.h"
#include "nn/data/bad_records.h"
#include "nn/data/sample_random.h"
#include "nn/data/steps.h"
#include "nn/data/stream.h"

namespace mx::data {

struct StreamLoader::Core {
  IterableHandle dataset;
  StreamOptions options;
  std::shared_ptr<const std::vector<std::string>> names;
};

namespace {

struct NumberedSample {
  Sample sample;
  int64_t number = 0;
};

/// The samples of one shard in their order: reads, divides and shuffles. Used by one operation at a time.
class StreamReader {
 public:
  StreamReader(const IterableDataset& dataset, const StreamOptions& options, int64_t epoch)
      : options_(options),
        stream_(dataset.open(epoch)),
        random_(epoch_key(options.seed, epoch, RandomPurpose::draw)) {}

  bool next(NumberedSample& sample) {
    if (options_.shuffle_buffer <= 1) return read(sample);
    NumberedSample one;
    while (static_cast<int64_t>(waiting_.size()) < options_.shuffle_buffer && read(one))
      waiting_.push_back(std::move(one));
    if (waiting_.empty()) return false;
    std::swap(waiting_[static_cast<size_t>(random_.below(static_cast<int64_t>(waiting_.size())))],
              waiting_.back());
    sample = std::move(waiting_.back());
    waiting_.pop_back();
    return true;
  }

 private:
  // Reads the next sample of this shard.
  bool read(NumberedSample& sample) {
    while (!ended_) {
      bool good = false;
      try {
        good = detail::read_record(options_.bad, options_.on_skip,
                                   [&] { ended_ = !stream_->next(sample.sample); });
      } catch (const FormatError&) {
        ++number_;
        throw;
      } catch (...) {
        ended_ = true;
        throw;
      }
      if (ended_) break;
      sample.number = number_++;
      if (good && sample.number % options_.shards == options_.shard) return true;
    }
    return false;
  }

  const StreamOptions& options_;
  std::unique_ptr<SampleStream> stream_;
  SampleRandom random_;
  std::vector<NumberedSample> waiting_;
  int64_t number_ = 0;
  bool ended_ = false;
};

/// One batch on its way.
struct StreamBatch {
  std::vector<NumberedSample> samples;
  Sample fields;
  std::vector<int64_t> numbers;
  bool is_full = false;
  /// Of reading or decoding. It is kept here, because a failed step would stop those behind it, and because
  /// the engine would give it the type OperationError.
  std::exception_ptr error;

  /// Reads the batch behind the next `skip` ones.
  void read(StreamReader& reader, const StreamOptions& options, int64_t skip) {
    try {
      for (; skip > 0; --skip) skip_batch(reader, options);
      NumberedSample one;
      while (static_cast<int64_t>(samples.size()) < options.batch_size && reader.next(one))
        samples.push_back(std::move(one));
      is_full = static_cast<int64_t>(samples.size()) == options.batch_size;
    } catch (...) {
      error = std::current_exception();
    }
  }

  void decode(const StreamOptions& options, uint64_t key) {
    if (error != nullptr || samples.empty() || (options.drop_last && !is_full)) return;
    try {
      transform_and_collate(options, key);
    } catch (...) {
      error = std::current_exception();
    }
  }

 private:
  // A damaged record ends a batch. The program has received its error before it saved the position.
  static void skip_batch(StreamReader& reader, const StreamOptions& options) {
    try {
      NumberedSample one;
      for (int64_t i = 0; i < options.batch_size && reader.next(one); ++i) {
      }
    } catch (const FormatError&) {
    }
  }

  void transform_and_collate(const StreamOptions& options, uint64_t key) {
    if (options.transform != nullptr)
      parallel_for(static_cast<int64_t>(samples.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          NumberedSample& one = samples[static_cast<size_t>(i)];
          SampleRandom random(sample_key(key, one.number, 0));
          options.transform(one.sample, random);
        }
      });
    std::vector<Sample> all;
    for (NumberedSample& one : samples) {
      numbers.push_back(one.number);
      all.push_back(std::move(one.sample));
    }
    samples.clear();
    fields = options.collate(std::move(all));
    // A batch without fields would look like the end of the stream.
    MX_CHECK(!fields.empty(), InvalidArgument,
             "[StreamLoader] expected samples with at least one field, got a batch without any, from sample ",
             numbers[0], " on");
  }
};

}  // namespace

class StreamLoader::Run final : public detail::BatchRun {
 public:
  /// `where`: of begin().
  Run(std::shared_ptr<const Core> core, StreamState begin, const std::source_location& where)
      : core_(std::move(core)),
        where_(where),
        state_(begin),
        reader_(std::make_shared<StreamReader>(*core_->dataset, core_->options, begin.epoch)),
        key_(epoch_key(core_->options.seed, begin.epoch, RandomPurpose::sample)),
        skip_(begin.position) {
    fill_queue();
  }

  void next() override try {
    if (at_end_) return;
    turn_.end(handed_out_);
    handed_out_.clear();
    current_ = Batch();
    fill_queue();
    const Flight flight = std::move(queue_.front());
    queue_.pop_front();
    try {
      flight.done.wait();
      if (flight.batch->error != nullptr) std::rethrow_exception(flight.batch->error);
    } catch (...) {
      ++state_.position;
      throw;
    }
    if (flight.batch->fields.empty()) return end();
    ++state_.position;
    std::vector<NDArray> arrays;
    for (HostArray& field : flight.batch->fields) arrays.push_back(to_ndarray(std::move(field)));
    const NDArray indices = array(flight.batch->numbers);
    const StreamOptions& options = core_->options;
    if (options.batch_transform != nullptr)
      arrays = options.batch_transform(std::move(arrays), {indices, options.seed, state_.epoch});
    for (NDArray& one : arrays) {
      one = one.to(options.context);
      handed_out_.push_back(one);
    }
    current_ = Batch(std::move(arrays), indices, state_.epoch, state_.position - 1, core_->names);
  } catch (const Error&) {
    mx::detail::rethrow_at(where_);
  }

  const StreamState& state() const { return state_; }

 private:
  struct Flight {
    std::shared_ptr<StreamBatch> batch;
    NDArray done;
  };

  void end() {
    at_end_ = true;
    queue_.clear();
  }

  void fill_queue() {
    while (queue_.size() < static_cast<size_t>(int64_t{core_->options.prefetch}) + 1) push();
  }

  void push() {
    Flight flight{std::make_shared<StreamBatch>(), detail::step_token()};
    const NDArray read = detail::step_token();
    const int64_t skip = std::exchange(skip_, 0);
    detail::push_step({turn_.array()}, read, "read_stream", StreamKind::copy_in,
                      [core = core_, reader = reader_, batch = flight.batch, skip] {
                        batch->read(*reader, core->options, skip);
                      },
                      {order_});
    detail::push_step(
        {read}, flight.done, "decode_samples", StreamKind::compute,
        [core = core_, batch = flight.batch, key = key_] { batch->decode(core->options, key); });
    queue_.push_back(std::move(flight));
  }

  std::shared_ptr<const Core> core_;
  const std::source_location where_;
  StreamState state_;
  std::shared_ptr<StreamReader> reader_;
  uint64_t key_;
  int64_t skip_;  // batches before the restored position
  std::deque<Flight> queue_;
  NDArray order_ = detail::step_token();  // each step that reads the stream updates it
  detail::Turn turn_;
  std::vector<NDArray> handed_out_;
};

StreamLoader::StreamLoader(IterableHandle dataset, StreamOptions o, std::source_location where) try {
  MX_CHECK(dataset != nullptr, InvalidArgument, "[StreamLoader] expected a data set, got an empty pointer");
  MX_CHECK(o.batch_size > 0 && o.batch_size <= INT32_MAX, InvalidArgument,
           "[StreamLoader] expected a batch size from 1 to ", INT32_MAX, ", got ", int64_t{o.batch_size});
  MX_CHECK(o.prefetch >= 0 && o.prefetch <= INT32_MAX && o.shuffle_buffer >= 0, InvalidArgument,
           "[StreamLoader] expected a prefetch and a shuffle buffer of 0 or more, got ", int64_t{o.prefetch},
           " and ", int64_t{o.shuffle_buffer});
  MX_CHECK(o.shards > 0 && o.shard >= 0 && o.shard < o.shards, InvalidArgument,
           "[StreamLoader] expected a shard below the number of shards, got ", int64_t{o.shard}, " of ",
           int64_t{o.shards});
  MX_CHECK(o.collate != nullptr, InvalidArgument,
           "[StreamLoader] expected a collate function, got an empty one");
  get_device(o.context);  // host memory allocated after that is page-locked
  auto names = std::make_shared<const std::vector<std::string>>(dataset->names());
  core_ = std::make_shared<const Core>(Core{std::move(dataset), std::move(o), std::move(names)});
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

StreamLoader::Iterator StreamLoader::begin(std::source_location where) try {
  run_ = std::make_shared<Run>(core_, next_, where);
  next_ = {next_.epoch + 1, 0};
  run_->advance();
  return Iterator(run_);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

StreamState StreamLoader::state() const { return run_ != nullptr && !run_->at_end() ? run_->state() : next_; }

void StreamLoader::restore(const StreamState& state) {
  MX_CHECK(state.epoch >= 0 && state.epoch < INT64_MAX && state.position >= 0 &&
               state.position <= INT64_MAX / core_->options.batch_size,
           InvalidArgument, "[StreamLoader] expected a state at a batch of an epoch, from 0 on, got batch ",
           state.position, " of epoch ", state.epoch);
  run_.reset();
  next_ = state;
}

}  // namespace mx::data
