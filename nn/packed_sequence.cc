#include "nn/packed_sequence.h"

#include <algorithm>
#include <numeric>

#include "engine/base/check.h"
#include "engine/base/host_list.h"
#include "ndarray/detail/place.h"
#include "operators/indexing.h"
#include "operators/shape_ops.h"

namespace mx::nn {
namespace {

/// The order of falling lengths; empty if they fall already. Throws InvalidArgument, naming `op`, if they
/// must.
std::vector<int64_t> order_of(const char* op, const std::vector<int64_t>& lengths, bool enforce_sorted) {
  const auto grows = std::adjacent_find(lengths.begin(), lengths.end(), std::less<>());
  if (grows == lengths.end()) return {};
  const auto place = grows - lengths.begin();
  MX_CHECK(!enforce_sorted, InvalidArgument, "[", op, "] expected lengths that do not grow, got ", *grows,
           " and then ", lengths[static_cast<size_t>(place) + 1], " at ", place + 1,
           " (enforce_sorted = false sorts them)");
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  return order;
}

/// Packs sequences whose step t of sequence b is row `row_of(b, t)` of `rows`.
template <class RowOf>
PackedSequence pack(const Arg& rows, const std::vector<int64_t>& lengths, std::vector<int64_t> order,
                    const RowOf& row_of) {
  PackedSequence packed;
  std::vector<int64_t> indices;
  const auto sequence = [&](size_t place) {
    return order.empty() ? static_cast<int64_t>(place) : order[place];
  };
  const auto length = [&](size_t place) { return lengths[static_cast<size_t>(sequence(place))]; };
  size_t going_on = lengths.size();
  for (int64_t t = 0; going_on > 0; ++t) {
    while (going_on > 0 && length(going_on - 1) <= t) --going_on;
    if (going_on == 0) break;
    packed.batch_sizes.push_back(static_cast<int64_t>(going_on));
    for (size_t place = 0; place < going_on; ++place) indices.push_back(row_of(sequence(place), t));
  }
  const Shape shape{static_cast<int64_t>(indices.size())};
  packed.data = take(rows, detail::index_array(indices, shape, rows.array.context()), 0);
  packed.sorted_indices = std::move(order);
  return packed;
}

/// Takes rows of `rows`, and `value` where an index is the number of rows. `indices` has `outer` times
/// `inner` elements.
NDArray take_or_fill(const NDArray& rows, const std::vector<int64_t>& indices, int64_t outer, int64_t inner,
                     Scalar value) {
  Shape one = rows.shape();
  one[0] = 1;
  const NDArray padding = full(one, value, rows.dtype(), rows.context());
  return take(concat({rows, padding}), detail::index_array(indices, Shape{outer, inner}, rows.context()), 0);
}

/// Indices of a padded array: index_of(b, t) for each place, `steps` times `batch` or the other way round.
template <class IndexOf>
std::vector<int64_t> padded_indices(int64_t steps, int64_t batch, bool batch_first, const IndexOf& index_of) {
  const int64_t places = checked_numel({steps, batch}, sizeof(int64_t), "pad_packed_sequence");
  std::vector<int64_t> indices = host_list<int64_t>(places, "pad_packed_sequence");
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < steps; ++t)
      indices[static_cast<size_t>(batch_first ? b * steps + t : t * batch + b)] = index_of(b, t);
  return indices;
}

void check_sequences(const char* op, std::span<const NDArray> sequences) {
  MX_CHECK(!sequences.empty(), InvalidArgument, "[", op, "] expected 1 sequence or more, got none");
  for (const NDArray& sequence : sequences) {
    const auto row = [](const NDArray& x) {
      Shape shape = x.shape();
      if (shape.rank() > 0) shape[0] = 0;
      return shape;
    };
    MX_CHECK(
        sequence.rank() > 0 && row(sequence) == row(sequences[0]) && sequence.dtype() == sequences[0].dtype(),
        InvalidArgument, "[", op,
        "] expected sequences (length, ..) of one type that differ in length only, got ",
        sequences[0].dtype(), ' ', sequences[0].shape(), " and ", sequence.dtype(), ' ', sequence.shape());
  }
}

std::vector<int64_t> lengths_of(std::span<const NDArray> sequences) {
  std::vector<int64_t> lengths;
  for (const NDArray& sequence : sequences) lengths.push_back(sequence.shape()[0]);
  return lengths;
}

/// The first row of each sequence when they are joined, and the number of all rows.
std::vector<int64_t> first_rows(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> first = {0};
  for (const int64_t length : lengths) first.push_back(first.back() + length);
  return first;
}

}  // namespace

NDArray detail::index_array(const std::vector<int64_t>& indices, const Shape& shape, Context context) {
  return from_data(indices.data(), shape).to(context);
}

std::vector<int64_t> detail::inverse_order(const std::vector<int64_t>& order) {
  const auto size = static_cast<int64_t>(order.size());
  std::vector<int64_t> inverse(order.size(), -1);
  for (int64_t i = 0; i < size; ++i) {
    const int64_t at = order[static_cast<size_t>(i)];
    MX_CHECK(at >= 0 && at < size && inverse[static_cast<size_t>(at)] < 0, InvalidArgument,
             "[PackedSequence] expected sorted_indices with each number from 0 to ", size - 1, " once, got ",
             at, " at ", i);
    inverse[static_cast<size_t>(at)] = i;
  }
  return inverse;
}

PackedSequence pack_padded_sequence(const Arg& x, const std::vector<int64_t>& lengths,
                                    const PackOptions& options) try {
  const Shape& shape = x.array.shape();
  MX_CHECK(shape.rank() >= 2, InvalidArgument,
           "[pack_padded_sequence] expected an array of rank 2 or more, got shape ", shape);
  const int64_t steps = shape[options.batch_first ? 1 : 0], batch = shape[options.batch_first ? 0 : 1];
  MX_CHECK(static_cast<int64_t>(lengths.size()) == batch && batch > 0, InvalidArgument,
           "[pack_padded_sequence] expected one length for each of 1 sequence or more, got ", lengths.size(),
           " lengths and ", batch, " sequences");
  for (size_t i = 0; i < lengths.size(); ++i)
    MX_CHECK(lengths[i] >= 1 && lengths[i] <= steps, InvalidArgument,
             "[pack_padded_sequence] expected lengths from 1 to ", steps, ", the number of steps, got ",
             lengths[i], " at ", i);
  std::vector<int64_t> order = order_of("pack_padded_sequence", lengths, options.enforce_sorted);
  Shape rows = shape;
  rows.erase(0);
  rows[0] = steps * batch;
  return pack(Arg(x.array.reshape(rows), x.where), lengths, std::move(order),
              [&](int64_t b, int64_t t) { return options.batch_first ? b * steps + t : t * batch + b; });
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

PackedSequence pack_padded_sequence(const Arg& x, const NDArray& lengths, const PackOptions& options) try {
  MX_CHECK(lengths.rank() == 1 && is_integral(lengths.dtype()), InvalidArgument,
           "[pack_padded_sequence] expected integer lengths of rank 1, got ", lengths.dtype(), ' ',
           lengths.shape());
  return pack_padded_sequence(x, lengths.to_vector<int64_t>(), options);
} catch (const Error&) {
  mx::detail::rethrow_at(x.where);
}

std::pair<NDArray, std::vector<int64_t>> pad_packed_sequence(const PackedSequence& packed,
                                                             const PadPackedOptions& options) {
  const auto longest = static_cast<int64_t>(packed.batch_sizes.size());
  const int64_t steps = options.total_length.value_or(longest), batch = packed.batch();
  MX_CHECK(steps >= longest, InvalidArgument, "[pad_packed_sequence] expected a total_length of at least ",
           longest, ", the length of the longest sequence, got ", steps);
  const int64_t rows = packed.data.rank() >= 1 ? packed.data.shape()[0] : 0;
  for (size_t t = 0; t < packed.batch_sizes.size(); ++t) {
    const int64_t size = packed.batch_sizes[t];
    MX_CHECK(size >= 0 && (t == 0 || size <= packed.batch_sizes[t - 1]), InvalidArgument,
             "[pad_packed_sequence] expected batch_sizes that do not grow, got ", size, " at step ", t);
    MX_CHECK(size <= rows, InvalidArgument, "[pad_packed_sequence] expected batch_sizes of at most ", rows,
             ", the number of rows of data, got ", size, " at step ", t);
  }
  const std::vector<int64_t> first = first_rows(packed.batch_sizes);
  MX_CHECK(packed.data.rank() >= 1 && packed.data.shape()[0] == first.back() &&
               (packed.sorted_indices.empty() || static_cast<int64_t>(packed.sorted_indices.size()) == batch),
           InvalidArgument, "[pad_packed_sequence] expected ", first.back(), " rows of data for ", batch,
           " sequences, got data of shape ", packed.data.shape(), " and ", packed.sorted_indices.size(),
           " sorted_indices");
  const std::vector<int64_t> places = detail::inverse_order(packed.sorted_indices);
  std::vector<int64_t> lengths(static_cast<size_t>(batch), 0);
  const std::vector<int64_t> indices =
      padded_indices(steps, batch, options.batch_first, [&](int64_t b, int64_t t) {
        const int64_t place = places.empty() ? b : places[static_cast<size_t>(b)];
        if (t >= longest || place >= packed.batch_sizes[static_cast<size_t>(t)]) return first.back();
        lengths[static_cast<size_t>(b)] = t + 1;
        return first[static_cast<size_t>(t)] + place;
      });
  const int64_t outer = options.batch_first ? batch : steps, inner = options.batch_first ? steps : batch;
  return {take_or_fill(packed.data, indices, outer, inner, options.padding_value), lengths};
}

NDArray pad_sequence(std::span<const NDArray> sequences, const PadOptions& options) {
  check_sequences("pad_sequence", sequences);
  const std::vector<int64_t> lengths = lengths_of(sequences), first = first_rows(lengths);
  const int64_t steps = *std::max_element(lengths.begin(), lengths.end());
  const auto batch = static_cast<int64_t>(lengths.size());
  const std::vector<int64_t> indices =
      padded_indices(steps, batch, options.batch_first, [&](int64_t b, int64_t t) {
        const auto i = static_cast<size_t>(b);
        return t < lengths[i] ? first[i] + t : first.back();
      });
  const int64_t outer = options.batch_first ? batch : steps, inner = options.batch_first ? steps : batch;
  return take_or_fill(concat(sequences), indices, outer, inner, options.padding_value);
}

PackedSequence pack_sequence(std::span<const NDArray> sequences, bool enforce_sorted) {
  check_sequences("pack_sequence", sequences);
  const std::vector<int64_t> lengths = lengths_of(sequences), first = first_rows(lengths);
  for (size_t i = 0; i < lengths.size(); ++i)
    MX_CHECK(lengths[i] >= 1, InvalidArgument, "[pack_sequence] expected lengths of 1 or more, got ",
             lengths[i], " at ", i);
  std::vector<int64_t> order = order_of("pack_sequence", lengths, enforce_sorted);
  return pack(concat(sequences), lengths, std::move(order),
              [&](int64_t b, int64_t t) { return first[static_cast<size_t>(b)] + t; });
}

}  // namespace mx::nn
