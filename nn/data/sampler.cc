#include "nn/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/host_list.h"
#include "nn/data/epoch_order.h"
#include "nn/data/sample_random.h"

namespace mx::data {
namespace {

std::vector<int64_t> counted(int64_t n) {
  std::vector<int64_t> all = host_list<int64_t>(n, "sampler");
  std::iota(all.begin(), all.end(), int64_t{0});
  return all;
}

class OrderedSampler final : public Sampler {
 public:
  OrderedSampler(int64_t n, bool shuffle, int64_t seed) : n_(n), shuffle_(shuffle), seed_(seed) {
    MX_CHECK(n > 0, InvalidArgument, "[", shuffle ? "random_sampler" : "sequential_sampler",
             "] expected at least one sample, got ", n);
  }
  int64_t size() const override { return n_; }
  std::vector<int64_t> order(int64_t epoch) const override {
    return shuffle_ ? random_order(n_, seed_, epoch) : counted(n_);
  }
  int64_t samples_needed() const override { return n_; }

 private:
  int64_t n_;
  bool shuffle_;
  int64_t seed_;
};

class SubsetSampler final : public Sampler {
 public:
  SubsetSampler(std::vector<int64_t> indices, bool shuffle, int64_t seed)
      : indices_(std::move(indices)), shuffle_(shuffle), seed_(seed) {
    MX_CHECK(!indices_.empty(), InvalidArgument, "[subset_sampler] expected at least one sample, got none");
    for (size_t i = 0; i < indices_.size(); ++i)
      MX_CHECK(indices_[i] >= 0, InvalidArgument, "[subset_sampler] expected sample numbers from 0 on, got ",
               indices_[i], " at position ", i);
    needed_ = std::min(*std::max_element(indices_.begin(), indices_.end()), INT64_MAX - 1) + 1;
  }
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  int64_t samples_needed() const override { return needed_; }
  std::vector<int64_t> order(int64_t epoch) const override {
    if (!shuffle_) return indices_;
    std::vector<int64_t> order = random_order(size(), seed_, epoch);
    for (int64_t& place : order) place = indices_[static_cast<size_t>(place)];
    return order;
  }

 private:
  std::vector<int64_t> indices_;
  bool shuffle_;
  int64_t seed_;
  int64_t needed_ = 0;
};

class WeightedSampler final : public Sampler {
 public:
  WeightedSampler(std::vector<double> weights, int64_t draws, bool replacement, int64_t seed)
      : weights_(std::move(weights)), draws_(draws), replacement_(replacement), seed_(seed) {
    int64_t possible = 0;
    double sum = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      MX_CHECK(std::isfinite(weights_[i]) && weights_[i] >= 0, InvalidArgument,
               "[weighted_sampler] expected weights that are finite and not negative, got ", weights_[i],
               " at position ", i);
      possible += weights_[i] > 0 ? 1 : 0;
      if (weights_[i] > 0) needed_ = static_cast<int64_t>(i) + 1;
      sums_.push_back(sum += weights_[i]);
    }
    MX_CHECK(possible > 0 && std::isfinite(sum), InvalidArgument,
             "[weighted_sampler] expected at least one weight above 0 and a finite sum, got ", possible,
             " weights above 0 with the sum ", sum);
    MX_CHECK(draws > 0 && (replacement || draws <= possible), InvalidArgument, "[weighted_sampler] expected ",
             replacement ? "at least one draw" : "draws from 1 to ",
             replacement ? "" : std::to_string(possible), ", got ", draws);
  }
  int64_t size() const override { return draws_; }
  int64_t samples_needed() const override { return needed_; }

  std::vector<int64_t> order(int64_t epoch) const override {
    SampleRandom random(epoch_key(seed_, epoch, RandomPurpose::draw));
    return replacement_ ? independent(random) : distinct(random);
  }

 private:
  std::vector<int64_t> independent(SampleRandom& random) const {
    std::vector<int64_t> drawn = host_list<int64_t>(draws_, "weighted_sampler");
    for (size_t i = 0; i < drawn.size();) {
      // The first sample whose sum of weights is above the number: samples of weight 0 are never that.
      const double at = random.uniform() * sums_.back();
      const auto found = std::upper_bound(sums_.begin(), sums_.end(), at);
      if (found != sums_.end()) drawn[i++] = found - sums_.begin();
    }
    return drawn;
  }

  // Sample i gets the key log(u) / weight with u uniform in (0, 1]; the largest keys are drawn, largest
  // first.
  std::vector<int64_t> distinct(SampleRandom& random) const {
    std::vector<std::pair<double, int64_t>> keys;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const double u = 1 - random.uniform();
      if (weights_[i] > 0) keys.emplace_back(-std::log(u) / weights_[i], static_cast<int64_t>(i));
    }
    std::partial_sort(keys.begin(), keys.begin() + draws_, keys.end());
    std::vector<int64_t> drawn;
    for (int64_t i = 0; i < draws_; ++i) drawn.push_back(keys[static_cast<size_t>(i)].second);
    return drawn;
  }

  std::vector<double> weights_, sums_;
  int64_t draws_;
  bool replacement_;
  int64_t seed_;
  int64_t needed_ = 0;
};

class CutBatches final : public BatchSampler {
 public:
  CutBatches(SamplerHandle sampler, int64_t batch_size, bool drop_last)
      : sampler_(std::move(sampler)), batch_size_(batch_size) {
    MX_CHECK(sampler_ != nullptr, InvalidArgument, "[cut_batches] expected a sampler, got an empty pointer");
    MX_CHECK(batch_size > 0, InvalidArgument, "[cut_batches] expected a batch size above 0, got ",
             batch_size);
    const int64_t n = sampler_->size();
    size_ = n / batch_size + (!drop_last && n % batch_size != 0 ? 1 : 0);
    MX_CHECK(size_ > 0, InvalidArgument, "[cut_batches] expected a batch size of at most ", n,
             ", the number of samples, with drop_last, got ", batch_size);
  }
  int64_t size() const override { return size_; }
  int64_t samples_needed() const override { return sampler_->samples_needed(); }
  std::vector<std::vector<int64_t>> batches(int64_t epoch) const override {
    const std::vector<int64_t> order = sampler_->order(epoch);
    const auto n = static_cast<int64_t>(order.size());
    std::vector<std::vector<int64_t>> made;
    for (int64_t i = 0; i < size_; ++i)
      made.emplace_back(order.begin() + i * batch_size_, order.begin() + std::min(n, (i + 1) * batch_size_));
    return made;
  }

 private:
  SamplerHandle sampler_;
  int64_t batch_size_, size_ = 0;
};

class LengthBatches final : public BatchSampler {
 public:
  LengthBatches(std::vector<int64_t> lengths, const LengthOptions& options)
      : lengths_(std::move(lengths)), options_(options) {
    MX_CHECK(!lengths_.empty(), InvalidArgument, "[length_batches] expected at least one sample, got none");
    for (size_t i = 0; i < lengths_.size(); ++i)
      MX_CHECK(lengths_[i] >= 0, InvalidArgument,
               "[length_batches] expected lengths that are not negative, got ", lengths_[i], " at position ",
               i);
    MX_CHECK(options.batch_size >= 0 && options.max_elements >= 0 &&
                 (options.batch_size > 0 || options.max_elements > 0),
             InvalidArgument, "[length_batches] expected batch_size or max_elements above 0, got ",
             int64_t{options.batch_size}, " and ", int64_t{options.max_elements});
    sorted_ = counted(static_cast<int64_t>(lengths_.size()));
    std::stable_sort(sorted_.begin(), sorted_.end(),
                     [this](int64_t a, int64_t b) { return length(a) < length(b); });
    // The batches end at these places. Lengths are ascending, so the last sample of a batch is the longest.
    const int64_t most = options.batch_size > 0 ? int64_t{options.batch_size} : INT64_MAX;
    const int64_t elements = options.max_elements > 0 ? int64_t{options.max_elements} : INT64_MAX;
    int64_t begin = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(sorted_.size()); ++i) {
      const int64_t samples = i - begin + 1, longest = std::max<int64_t>(length(at(i)), 1);
      if (i > begin && (samples > most || samples > elements / longest)) {
        ends_.push_back(i);
        begin = i;
      }
    }
    ends_.push_back(static_cast<int64_t>(sorted_.size()));
  }
  int64_t size() const override { return static_cast<int64_t>(ends_.size()); }
  int64_t samples_needed() const override { return static_cast<int64_t>(lengths_.size()); }

  std::vector<std::vector<int64_t>> batches(int64_t epoch) const override {
    std::vector<int64_t> order = sorted_;
    if (options_.shuffle) mix_equal_lengths(order, epoch);
    std::vector<std::vector<int64_t>> made;
    int64_t begin = 0;
    for (int64_t end : ends_) {
      made.emplace_back(order.begin() + begin, order.begin() + end);
      begin = end;
    }
    if (!options_.shuffle) return made;
    std::vector<std::vector<int64_t>> mixed;
    for (int64_t place : random_order(size(), options_.seed, epoch, RandomPurpose::batch_order))
      mixed.push_back(std::move(made[static_cast<size_t>(place)]));
    return mixed;
  }

 private:
  int64_t at(int64_t place) const { return sorted_[static_cast<size_t>(place)]; }
  int64_t length(int64_t sample) const { return lengths_[static_cast<size_t>(sample)]; }

  // Sorts by length and, among equal lengths, by the place in a random order.
  void mix_equal_lengths(std::vector<int64_t>& order, int64_t epoch) const {
    const std::vector<int64_t> places =
        random_order(static_cast<int64_t>(order.size()), options_.seed, epoch);
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      if (length(a) != length(b)) return length(a) < length(b);
      return places[static_cast<size_t>(a)] < places[static_cast<size_t>(b)];
    });
  }

  std::vector<int64_t> lengths_;
  LengthOptions options_;
  std::vector<int64_t> sorted_, ends_;
};

}  // namespace

SamplerHandle sequential_sampler(int64_t n) { return std::make_shared<const OrderedSampler>(n, false, 0); }

SamplerHandle random_sampler(int64_t n, int64_t seed) {
  return std::make_shared<const OrderedSampler>(n, true, seed);
}

SamplerHandle subset_sampler(std::vector<int64_t> indices, bool shuffle, int64_t seed) {
  return std::make_shared<const SubsetSampler>(std::move(indices), shuffle, seed);
}

SamplerHandle weighted_sampler(std::vector<double> weights, int64_t draws, bool replacement, int64_t seed) {
  return std::make_shared<const WeightedSampler>(std::move(weights), draws, replacement, seed);
}

BatchSamplerHandle cut_batches(SamplerHandle sampler, int64_t batch_size, bool drop_last) {
  return std::make_shared<const CutBatches>(std::move(sampler), batch_size, drop_last);
}

BatchSamplerHandle length_batches(std::vector<int64_t> lengths, const LengthOptions& options) {
  return std::make_shared<const LengthBatches>(std::move(lengths), options);
}

}  // namespace mx::data
