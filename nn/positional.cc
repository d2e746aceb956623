#include "nn/positional.h"

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/detail/call_site.h"
#include "nn/init.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/shape_ops.h"

namespace mx::nn {
namespace {

void check_positions(const char* layer, int64_t width, const PositionalOptions& o) {
  MX_CHECK(width > 0 && o.max_length > 0, InvalidArgument, "[", layer,
           "] expected a width and a max_length of 1 or more, got ", width, " and ", o.max_length);
  MX_CHECK(is_floating(o.dtype), InvalidArgument, "[", layer, "] expected a floating-point type, got ",
           o.dtype);
}

NDArray sinusoids(int64_t width, const PositionalOptions& o) {
  check_positions("SinusoidalPositions", width, o);
  const int64_t pairs = (width + 1) / 2;
  const NDArray positions = arange(o.max_length).to(f64).reshape({o.max_length, 1});
  const NDArray frequencies =
      exp(arange(pairs).to(f64) * (-2 * 9.210340371976182736 / static_cast<double>(width)));
  const NDArray angles = positions * frequencies;
  // Sines and cosines take turns.
  const NDArray both = stack({sin(angles), cos(angles)}, 2).reshape({o.max_length, 2 * pairs});
  return both.slice(1, {0, width}).to(o.dtype).to_contiguous().to(o.context);
}

NDArray with_positions(const char* layer, const NDArray& x, const NDArray& table, int64_t offset,
                       bool batch_first) {
  const int64_t width = table.shape()[1];
  MX_CHECK((x.rank() == 2 || x.rank() == 3) && x.shape()[x.rank() - 1] == width, InvalidArgument, "[", layer,
           "] expected an array of rank 2 or 3 whose rows have ", width, " numbers, got shape ", x.shape());
  const bool length_first = x.rank() == 3 && !batch_first;
  const int64_t length = x.shape()[x.rank() == 3 && batch_first ? 1 : 0];
  MX_CHECK(offset >= 0 && offset + length <= table.shape()[0], InvalidArgument, "[", layer,
           "] expected positions from 0 to ", table.shape()[0] - 1, ", got ", length, " from ", offset,
           " on");
  const NDArray rows = table.slice(0, {offset, offset + length});
  return add(detail::at_call(x), length_first ? rows.expand_dims(1) : rows);
}

}  // namespace

SinusoidalPositions::SinusoidalPositions(IntArg width, const PositionalOptions& o,
                                         std::source_location where) try
    : table(add_buffer("table", sinusoids(width, o), false)), batch_first_(o.batch_first) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray SinusoidalPositions::forward(const NDArray& x, int64_t offset) {
  return with_positions("SinusoidalPositions", x, table, offset, batch_first_);
}

std::string SinusoidalPositions::extra() const {
  return mx::detail::concat("width=", table.shape()[1], ", max_length=", table.shape()[0]);
}

LearnedPositions::LearnedPositions(IntArg width, const PositionalOptions& o, std::source_location where) try
    : batch_first_(o.batch_first) {
  check_positions("LearnedPositions", width, o);
  weight = add_parameter("weight", empty({o.max_length, width}, o.dtype, o.context));
  init::normal_(weight, 0, 0.02);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray LearnedPositions::forward(const NDArray& x, int64_t offset) {
  return with_positions("LearnedPositions", x, weight, offset, batch_first_);
}

std::string LearnedPositions::extra() const {
  return mx::detail::concat("width=", weight.shape()[1], ", max_length=", weight.shape()[0]);
}

NDArray RotaryEmbedding::forward(const NDArray& x, int64_t offset) {
  RotaryOptions options = options_;
  options.offset += offset;
  return rotary_embedding(detail::at_call(x), options);
}

std::string RotaryEmbedding::extra() const {
  return mx::detail::concat("theta=", options_.theta, options_.interleaved ? ", interleaved=true" : "");
}

}  // namespace mx::nn
