// Reductions over segments: runs of rows of an array that belong together, such as the edges of a node or the
// tokens of a sentence.
//
// Segment s of x consists of the rows x[offsets[s]] to x[offsets[s + 1] - 1]. `offsets` is i32 or i64 with
// one element more than there are segments; it ascends from 0 to the number of rows. If each row has the
// number of its segment instead, segment_offsets() converts these numbers:
//
//   NDArray y = segment_sum(x, segment_offsets(ids, 10));
//
// The functions throw InvalidArgument for shapes and types that do not fit. Wrong offsets or ids are found
// when the operation runs: waiting for the result then throws InvalidArgument, which names the first wrong
// number. A segment without rows gives 0. f16 and bf16 are computed in f32.
#pragma once

#include <cstdint>

#include "operators/operator.h"

namespace mx {

NDArray segment_sum(const Arg& x, const NDArray& offsets);
NDArray segment_mean(const Arg& x, const NDArray& offsets);
/// The largest or smallest elements; NaN if one is NaN. Equal ones share the gradient equally.
NDArray segment_max(const Arg& x, const NDArray& offsets);
NDArray segment_min(const Arg& x, const NDArray& offsets);

/// Returns an array of `rows` rows: row i is x[s] for the segment s of row i. The gradient of segment_sum.
NDArray segment_expand(const Arg& x, const NDArray& offsets, IntArg rows);
/// Returns exp(x) / sum(exp(x)), with a sum over each segment for each of the other indices; as softmax,
/// without overflow.
NDArray segment_softmax(const Arg& x, const NDArray& offsets);

/// Returns the offsets, i64 (segments + 1,), of segments whose rows have these ids. The ids must ascend, from
/// 0 or more to segments - 1 or less.
NDArray segment_offsets(const Arg& ids, IntArg segments);

}  // namespace mx
