// BatchIterator: the iterator of Loader and StreamLoader.
//
// Thread-safety: one thread at a time may use a loader and its iterators.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>

#include "engine/base/check.h"
#include "nn/data/batch.h"

namespace mx::data {
namespace detail {

/// One loop over an epoch. Internal to the loaders.
class BatchRun {
 public:
  virtual ~BatchRun() = default;
  /// Advances to the next batch. Throws the error of that batch; the next call then skips it.
  void advance() {
    has_batch_ = false;
    next();
    has_batch_ = true;
  }
  bool at_end() const { return at_end_; }
  /// Throws InvalidState if the last advance() has thrown.
  Batch& batch() {
    MX_CHECK(
        has_batch_, InvalidState,
        "[Loader] expected an iterator with a batch, got none: the step to this batch failed; ++ goes on to "
        "the next one");
    return current_;
  }

 protected:
  virtual void next() = 0;

  Batch current_;
  bool at_end_ = false;

 private:
  bool has_batch_ = false;
};

}  // namespace detail

/// An input iterator: copies share their position.
class BatchIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using iterator_concept = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using pointer = Batch*;
  using reference = Batch&;

  BatchIterator() = default;
  /// For loaders.
  explicit BatchIterator(std::shared_ptr<detail::BatchRun> run) : run_(std::move(run)) {}

  /// Throws InvalidState at the end, as the next two do, and after a ++ that has thrown.
  Batch& operator*() const { return checked().batch(); }
  Batch* operator->() const { return &**this; }
  /// Advances to the next batch. Throws the error of a batch that could not be made; the next ++ then skips
  /// it.
  BatchIterator& operator++() {
    checked().advance();
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const BatchIterator& i, std::default_sentinel_t) {
    return i.run_ == nullptr || i.run_->at_end();
  }

 private:
  detail::BatchRun& checked() const;

  std::shared_ptr<detail::BatchRun> run_;
};

}  // namespace mx::data
