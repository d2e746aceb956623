// Folding: combining the elements of several ranks.
//
//   fold_ranks(sum, inputs, ranks, count, Type::f32, Reduction::sum);   // ((x0 + x1) + x2) + ...
//   fold(Reduction::sum, Type::f32, sum, more, count);                  // sum = sum + more
//
// Every element is the left fold over the ranks, in the order of the pointers, so the result does not depend
// on the instruction set or on how the caller cuts the elements into pieces. f16 and bf16 are combined in f32
// and rounded once, at the end. Sums of integers wrap. Of a minimum or maximum with a NaN, the result is NaN;
// of zeros with different signs it is the last one.
//
// Buffers need no alignment beyond that of an element. The output may be one of the inputs; other overlaps
// are not allowed.
//
// Thread-safety: functions without state.
#pragma once

#include <cstddef>

#include "comm/communicator.h"
#include "comm/type.h"

namespace mx::comm {

/// Combines the elements of `ranks` inputs, at least one, in one pass over all of them.
void fold_ranks(void* out, const void* const* inputs, int ranks, size_t count, Type type,
                Reduction reduction);

/// The same for two inputs: acc = acc (reduction) in. Of many f16 or bf16 inputs, fold_ranks() rounds only
/// once.
void fold(Reduction reduction, Type type, void* acc, const void* in, size_t count);

}  // namespace mx::comm
