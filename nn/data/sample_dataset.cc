#include "nn/data/sample_dataset.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "ndarray/detail/place.h"
#include "ndarray/io/io_error.h"
#include "ndarray/kernels/parallel.h"
#include "nn/data/steps.h"

namespace mx::data {

struct SampleDataset::Core {
  SourceHandle source;
  SampleOptions options;
};

namespace {

/// The number of operations that read the files of one batch. They run at the same time if the engine has as
/// many threads.
constexpr int64_t kReadOperations = 4;

/// One batch on its way. Owned by the operations and by whoever waits for the batch.
struct Reading {
  SourceHandle source;
  SampleOptions options;
  std::vector<int64_t> indices;
  uint64_t key = 0;
  std::vector<std::string> bytes{};
  std::vector<Sample> samples{};
  std::vector<std::exception_ptr> errors{};
  Sample batch{};
  std::vector<int64_t> kept{};
  /// Of the batch. It is kept here, because the engine would give it the type OperationError.
  std::exception_ptr failure = nullptr;

  void fetch(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      keep_error(i, [&](size_t at) { bytes[at] = source->fetch(indices[at]); });
  }

  void run() {
    try {
      decode();
      collate();
    } catch (...) {
      failure = std::current_exception();
    }
  }

 private:
  void decode() {
    parallel_for(static_cast<int64_t>(indices.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (errors[static_cast<size_t>(i)] != nullptr) continue;
        keep_error(i, [&](size_t at) {
          samples[at] = source->decode(indices[at], bytes[at]);
          bytes[at] = std::string();
          if (options.transform == nullptr) return;
          SampleRandom random(sample_key(key, indices[at], 0));
          options.transform(samples[at], random);
        });
      }
    });
  }

  void collate() {
    std::vector<Sample> good;
    for (size_t i = 0; i < samples.size(); ++i) {
      if (errors[i] != nullptr) {
        leave_out(errors[i], indices[i]);
        continue;
      }
      kept.push_back(static_cast<int64_t>(i));
      good.push_back(std::move(samples[i]));
    }
    samples.clear();
    if (!good.empty()) batch = options.collate(std::move(good));
  }

  template <class F>
  void keep_error(int64_t i, const F& f) {
    const auto at = static_cast<size_t>(i);
    try {
      f(at);
    } catch (...) {
      errors[at] = std::current_exception();
    }
  }

  // Rethrows the error unless it says that the sample is bad and bad samples are left out.
  void leave_out(const std::exception_ptr& error, int64_t index) const {
    try {
      std::rethrow_exception(error);
    } catch (const FormatError& e) {
      if (options.bad == BadSamples::fail) throw;
      if (options.on_skip != nullptr) options.on_skip(e.what());
    } catch (const FileError& e) {
      if (options.bad == BadSamples::fail) throw;
      if (options.on_skip != nullptr) options.on_skip(e.what());
    } catch (...) {
      std::rethrow_exception(rewrite_current_exception([&](const std::string& text) {
        return mx::detail::concat(text, " (in sample ", index, " of a SampleDataset)");
      }));
    }
  }
};

}  // namespace

void log_skipped(const std::string& error) { log(LogLevel::warning, "a sample was left out: ", error); }

SampleDataset::SampleDataset(SourceHandle source, SampleOptions options, std::source_location where) try {
  MX_CHECK(source != nullptr, InvalidArgument, "[SampleDataset] expected a source, got an empty pointer");
  MX_CHECK(options.collate != nullptr, InvalidArgument,
           "[SampleDataset] expected a collate function, got an empty one");
  core_ = std::make_shared<const Core>(Core{std::move(source), std::move(options)});
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

int64_t SampleDataset::size() const { return core_->source->size(); }

std::vector<std::string> SampleDataset::names() const {
  return core_->options.names.empty() ? core_->source->names() : core_->options.names;
}

PendingBatch SampleDataset::start(const Indices& indices) const {
  for (size_t i = 0; i < indices.values().size(); ++i)
    MX_CHECK(indices.values()[i] >= 0 && indices.values()[i] < size(), InvalidArgument,
             "[SampleDataset] expected indices from 0 to ", size() - 1, ", got ", indices.values()[i],
             " at position ", i);
  const auto reading = std::make_shared<Reading>();
  reading->source = core_->source;
  reading->options = core_->options;
  reading->indices.assign(indices.values().begin(), indices.values().end());
  reading->key = epoch_key(indices.seed(), indices.epoch(), RandomPurpose::sample);
  const int64_t n = indices.size();
  reading->bytes.resize(static_cast<size_t>(n));
  reading->samples.resize(static_cast<size_t>(n));
  reading->errors.resize(static_cast<size_t>(n));

  std::vector<NDArray> fetched = {indices.array()};
  if (core_->source->reads_files()) {
    fetched.clear();
    const int64_t pieces = std::clamp<int64_t>(n, 1, kReadOperations);
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t begin = n * piece / pieces, end = n * (piece + 1) / pieces;
      fetched.push_back(detail::step_token());
      detail::push_step(
          {indices.array()}, fetched.back(), "read_files", StreamKind::copy_in,
          [reading, begin, end] { reading->fetch(begin, end); }, {}, indices.where());
    }
  }
  const NDArray done = detail::step_token();
  detail::push_step(
      fetched, done, "decode_samples", StreamKind::compute, [reading] { reading->run(); }, {},
      indices.where());
  return PendingBatch(
      [reading, done] {
        done.wait();
        if (reading->failure != nullptr) std::rethrow_exception(reading->failure);
        PendingBatch::Result result;
        for (HostArray& field : reading->batch) result.arrays.push_back(to_ndarray(std::move(field)));
        result.is_regular = false;
        result.is_partial = reading->kept.size() < reading->indices.size();
        result.kept = std::move(reading->kept);
        return result;
      },
      [done] { return detail::has_ended(done); });
}

std::vector<NDArray> SampleDataset::gather(const Indices& indices) const {
  PendingBatch::Result result = start(indices).finish();
  MX_CHECK(!result.arrays.empty(), InvalidArgument,
           "[SampleDataset] expected at least one sample that can be read, got none of ", indices.size());
  return std::move(result.arrays);
}

}  // namespace mx::data
