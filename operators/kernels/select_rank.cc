#include "operators/kernels/select_rank.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/index_check.h"
#include "operators/kernels/sort_keys.h"
#include "operators/kernels/sort_rows.h"

namespace mx::kernels {
namespace {

/// Bits of a key that one histogram counts: its counters fit into the first-level cache.
constexpr int kDigit = 12;
/// Up to this number of elements, sorting their keys costs less than a histogram.
constexpr int64_t kFewElements = 1024;
/// Up to this number of places, and up to an eighth of the row, selecting them costs less than sorting the
/// row with its indices.
constexpr int64_t kFewPlaces = 8;
/// The elements that a thread counts at a time: at least so many, in at most so many pieces.
constexpr int64_t kLeastSelectPiece = 65536, kMostPieces = 64;
/// Indices that are collected in a buffer before they are sorted into buckets.
constexpr int64_t kCollected = 1024;

/// A place in sorted order, and where its index is stored.
struct Wanted {
  int64_t place;
  int64_t slot;
};

/// The elements of a row that a step of the selection looks at: all of them, or those at some indices, which
/// ascend.
struct Candidates {
  const int64_t* indices;  // null: all
  int64_t n;
  int64_t operator[](int64_t i) const { return indices == nullptr ? i : indices[i]; }
};

/// A bucket with at least one wanted place.
struct Bucket {
  size_t digit;
  int64_t first;  // the place of its first element
  int64_t size;
  std::span<const Wanted> wanted;
};

/// Selects in rows of n elements of type T, one at a time; in a long row with several threads.
template <class T>
class RowSelector {
  using Bits = BitsOf<T>;
  using SortKey = std::conditional_t<sizeof(Bits) == 1, uint16_t, Bits>;  // of a type that KeySorter takes

 public:
  explicit RowSelector(int64_t n) : n_(n), keys_(n), few_(std::min(n, kFewElements)) {}

  void load(const SortRow<const T>& row) {
    parallel_for(n_, kLoopGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) keys_[i] = key_of(row[i], false);
    });
  }

  /// Writes the indices of the elements that sorting would put at these places.
  void select(const SortRow<const int64_t>& places, int64_t count, const SortRow<int64_t>& target) {
    wanted_.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) wanted_[static_cast<size_t>(i)] = {places[i], i};
    std::sort(wanted_.begin(), wanted_.end(),
              [](const Wanted& a, const Wanted& b) { return a.place < b.place; });
    select(wanted_, [&](int64_t slot, int64_t index) { target[slot] = index; });
  }

  /// Calls take(slot, index) for each wanted place, with the index of the element that sorting would put
  /// there. Precondition: the places ascend.
  template <class Take>
  void select(std::span<const Wanted> wanted, const Take& take) {
    if (static_cast<int64_t>(wanted.size()) > std::max(kFewPlaces, n_ / 8)) {
      sort_all(wanted, take);
    } else {
      descend({nullptr, n_}, 0, wanted, take);
    }
  }

  /// Writes the indices in the order of argpartition().
  void divide(int64_t kth, const SortRow<int64_t>& target) {
    Bits pivot{};
    const Wanted wanted{kth, 0};
    select({&wanted, 1}, [&](int64_t, int64_t index) { pivot = keys_[index]; });
    const int64_t piece = piece_of(n_), pieces = (n_ + piece - 1) / piece;
    std::vector<std::array<int64_t, 3>> starts(static_cast<size_t>(pieces));
    parallel_for(n_, piece, [&](int64_t begin, int64_t end) {
      const Bits* const keys = keys_.begin();
      const Bits middle = pivot;
      int64_t smaller = 0, larger = 0;
      for (int64_t i = begin; i < end; ++i) {
        smaller += static_cast<int64_t>(keys[i] < middle);
        larger += static_cast<int64_t>(keys[i] > middle);
      }
      starts[static_cast<size_t>(begin / piece)] = {smaller, end - begin - smaller - larger, larger};
    });
    int64_t at = 0;
    for (size_t part = 0; part < 3; ++part)
      for (auto& start : starts) {
        const int64_t count = start[part];
        start[part] = at;
        at += count;
      }
    parallel_for(n_, piece, [&](int64_t begin, int64_t end) {
      std::array<int64_t, 3> next = starts[static_cast<size_t>(begin / piece)];
      const Bits* const keys = keys_.begin();
      const Bits middle = pivot;
      int64_t chosen[3][kCollected];
      for (int64_t done = begin; done < end; done += kCollected) {
        // Without a branch on the part, because it could not be predicted.
        size_t smaller = 0, equal = 0, larger = 0;
        for (int64_t i = done; i < std::min(done + kCollected, end); ++i) {
          chosen[0][smaller] = chosen[1][equal] = chosen[2][larger] = i;
          const auto below = static_cast<size_t>(keys[i] < middle),
                     above = static_cast<size_t>(keys[i] > middle);
          smaller += below;
          larger += above;
          equal += 1 - below - above;
        }
        const size_t count[3] = {smaller, equal, larger};
        for (size_t part = 0; part < 3; ++part)
          for (size_t i = 0; i < count[part]; ++i) target[next[part]++] = chosen[part][i];
      }
    });
  }

 private:
  static int64_t piece_of(int64_t n) {
    return std::max(kLeastSelectPiece, (n + kMostPieces - 1) / kMostPieces);
  }

  /// For so many places that sorting the whole row costs less.
  template <class Take>
  void sort_all(std::span<const Wanted> wanted, const Take& take) {
    visit_packed<T>(n_, [&](auto packing) {
      using P = decltype(packing);
      Keys<typename P::Number> packed(n_);
      for (int64_t i = 0; i < n_; ++i) packed[i] = P::make(keys_[i], i);
      sorter_.sort(packed);
      for (const Wanted& w : wanted) take(w.slot, P::index(packed[w.place]));
    });
  }

  /// Selects among the candidates; the smallest of them has the place `first`.
  template <class Take>
  void descend(const Candidates& some, int64_t first, std::span<const Wanted> wanted, const Take& take) {
    if (some.n <= kFewElements) return sort_few(some, first, wanted, take);
    const int bits = different_bits(some);
    if (bits == 0) {
      for (const Wanted& w : wanted) take(w.slot, some[w.place - first]);
      return;
    }
    const int shift = std::max(0, bits - kDigit);
    const int64_t piece = piece_of(some.n);
    const std::vector<int64_t> counts = count_digits(some, shift, piece);
    const std::vector<Bucket> buckets = find_buckets(counts, first, wanted);
    std::vector<std::unique_ptr<int64_t[]>> lists = distribute(some, shift, piece, counts, buckets);
    for (size_t b = 0; b < buckets.size(); ++b) {
      descend({lists[b].get(), buckets[b].size}, buckets[b].first, buckets[b].wanted, take);
      lists[b].reset();
    }
  }

  /// Sorts the keys alone, then looks for the element with the wanted key and its turn among equal ones.
  template <class Take>
  void sort_few(const Candidates& some, int64_t first, std::span<const Wanted> wanted, const Take& take) {
    few_.n = some.n;
    for (int64_t i = 0; i < some.n; ++i) few_[i] = keys_[some[i]];
    sorter_.sort(few_);
    for (const Wanted& w : wanted) {
      const SortKey key = few_[w.place - first];
      const SortKey* const equal = std::lower_bound(few_.begin(), few_.end(), key);
      int64_t turn = w.place - first - (equal - few_.begin()), i = 0;
      while (keys_[some[i]] != key || turn-- > 0) ++i;
      take(w.slot, some[i]);
    }
  }

  /// Returns the number of lower bits in which not all keys of the candidates are equal.
  int different_bits(const Candidates& some) const {
    const Bits one = keys_[some[0]];
    Bits all = 0;
    if (some.indices == nullptr) {
      for (int64_t i = 0; i < some.n; ++i) all = static_cast<Bits>(all | (keys_[i] ^ one));
    } else {
      for (int64_t i = 0; i < some.n; ++i) all = static_cast<Bits>(all | (keys_[some.indices[i]] ^ one));
    }
    return static_cast<int>(std::bit_width(all));
  }

  size_t digit_of(int64_t index, int shift) const {
    return static_cast<size_t>(keys_[index] >> shift) & ((size_t{1} << kDigit) - 1);
  }

  /// Counts the candidates with each digit, piece by piece.
  std::vector<int64_t> count_digits(const Candidates& some, int shift, int64_t piece) const {
    std::vector<int64_t> counts(static_cast<size_t>((some.n + piece - 1) / piece) << kDigit);
    parallel_for(some.n, piece, [&](int64_t begin, int64_t end) {
      int64_t* const count = counts.data() + (begin / piece << kDigit);
      for (int64_t i = begin; i < end; ++i) ++count[digit_of(some[i], shift)];
    });
    return counts;
  }

  static std::vector<Bucket> find_buckets(const std::vector<int64_t>& counts, int64_t first,
                                          std::span<const Wanted> wanted) {
    std::vector<Bucket> buckets;
    constexpr size_t kDigits = size_t{1} << kDigit;
    for (size_t digit = 0; digit < kDigits && !wanted.empty(); ++digit) {
      int64_t size = 0;
      for (size_t at = digit; at < counts.size(); at += kDigits) size += counts[at];
      size_t here = 0;
      while (here < wanted.size() && wanted[here].place < first + size) ++here;
      if (here > 0) buckets.push_back({digit, first, size, wanted.first(here)});
      wanted = wanted.subspan(here);
      first += size;
    }
    return buckets;
  }

  /// Returns the candidates of each bucket, in their order.
  std::vector<std::unique_ptr<int64_t[]>> distribute(const Candidates& some, int shift, int64_t piece,
                                                     const std::vector<int64_t>& counts,
                                                     const std::vector<Bucket>& buckets) const {
    const size_t pieces = counts.size() >> kDigit;
    std::vector<uint16_t> number(size_t{1} << kDigit);  // of the digit's bucket, from 1 on; 0: not wanted
    std::vector<std::unique_ptr<int64_t[]>> lists;
    std::vector<int64_t*> starts(pieces * buckets.size());
    for (size_t b = 0; b < buckets.size(); ++b) {
      number[buckets[b].digit] = static_cast<uint16_t>(b + 1);
      lists.emplace_back(new int64_t[static_cast<size_t>(buckets[b].size)]);
      int64_t* at = lists.back().get();
      for (size_t p = 0; p < pieces; ++p) {
        starts[p * buckets.size() + b] = at;
        at += counts[(p << kDigit) + buckets[b].digit];
      }
    }
    parallel_for(some.n, piece, [&](int64_t begin, int64_t end) {
      int64_t** const next = starts.data() + static_cast<size_t>(begin / piece) * buckets.size();
      std::array<int64_t, kCollected> chosen;
      for (int64_t done = begin; done < end; done += kCollected) {
        // Without a branch on whether an element is wanted, because it could not be predicted.
        size_t count = 0;
        for (int64_t i = done; i < std::min(done + kCollected, end); ++i) {
          chosen[count] = some[i];
          count += static_cast<size_t>(number[digit_of(some[i], shift)] != 0);
        }
        for (size_t i = 0; i < count; ++i) *next[number[digit_of(chosen[i], shift)] - 1]++ = chosen[i];
      }
    });
    return lists;
  }

  int64_t n_;
  Keys<Bits> keys_;
  // Memory that rows share.
  Keys<SortKey> few_;
  std::vector<Wanted> wanted_;
  KeySorter sorter_;
};

/// Calls f(selector, row) for each row of the source, with the row's keys loaded.
template <class F>
void each_row(const Tensor& source, int axis, const F& f) {
  const int64_t n = source.shape[axis];
  const RowsAlong rows(source, axis);
  visit(source.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_for(rows.count(), rows_at_a_time(rows.count(), n), [&](int64_t begin, int64_t end) {
      RowSelector<T> selector(n);
      for (int64_t row = begin; row < end; ++row) {
        selector.load(rows.template row<const T>(row));
        f(selector, row);
      }
    });
  });
}

}  // namespace

void argselect(const Tensor& target, const Tensor& source, const Tensor& places) {
  const char* const op = "argselect";
  const int last = source.rank() - 1;
  MX_CHECK(last >= 0 && places.rank() == source.rank(), InvalidArgument, "[", op,
           "] expected places of the source's rank, got shapes ", places.shape, " and ", source.shape);
  Shape expected = source.shape;
  expected[last] = places.shape[last];
  detail::check_shape(places.shape, expected, "places", op);
  detail::check_shape(target.shape, expected, "a target", op);
  detail::check_index_target(target, source.shape[last], "indices", op);
  MX_CHECK(target.dtype == DType::i64 && places.dtype == DType::i64, InvalidArgument, "[", op,
           "] expected places and a target of type i64, got ", places.dtype, " and ", target.dtype);
  if (places.numel() == 0) return;
  detail::check_indices(places, 0, source.shape[last], last, IndexMode::raise, op);
  const RowsAlong all_places(places, last), targets(target, last);
  const int64_t count = places.shape[last];
  each_row(source, last, [&](auto& selector, int64_t row) {
    selector.select(all_places.row<const int64_t>(row), count, targets.row<int64_t>(row));
  });
}

void argpartition(const Tensor& target, const Tensor& source, int64_t axis, int64_t kth) {
  const char* const op = "argpartition";
  const int at = normalize_axis(axis, source.rank(), op);
  const int64_t n = source.shape[at];
  MX_CHECK(target.dtype == DType::i64, InvalidArgument, "[", op, "] expected a target of type i64, got ",
           target.dtype);
  detail::check_shape(target.shape, source.shape, "a target", op);
  MX_CHECK(kth >= 0 && kth < n, InvalidArgument, "[", op, "] expected kth from 0 to ", n - 1, ", got ", kth);
  if (source.numel() == 0) return;
  const RowsAlong targets(target, at);
  each_row(source, at, [&](auto& selector, int64_t row) { selector.divide(kth, targets.row<int64_t>(row)); });
}

}  // namespace mx::kernels
