#include "comm/fold.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/base/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/fold.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::comm::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The type in which elements of type T are combined.
template <class T>
using Computing = std::conditional_t<HalfFloat<T>, float, T>;

template <class T>
HWY_INLINE T fold_one(std::integral_constant<Reduction, Reduction::sum>, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return a + b;
  }
}
template <class T>
HWY_INLINE T fold_one(std::integral_constant<Reduction, Reduction::min>, T a, T b) {
  return a < b || a != a ? a : b;
}
template <class T>
HWY_INLINE T fold_one(std::integral_constant<Reduction, Reduction::max>, T a, T b) {
  return a > b || a != a ? a : b;
}

// Combines one block of a rank with what has been combined so far. Compilers vectorise it.
template <class Op, class C, class T>
HWY_INLINE void fold_block(Op op, C* HWY_RESTRICT acc, const T* HWY_RESTRICT in, size_t count) {
  for (size_t i = 0; i < count; ++i) acc[i] = fold_one(op, acc[i], static_cast<C>(in[i]));
}

// The portable form: block by block, with an accumulator that stays in the nearest cache. A block is stored
// after it has been read from all inputs, so the output may be one of them.
template <Reduction kReduction, class T>
void fold_blocks(void* out, const void* const* inputs, size_t ranks, size_t begin, size_t count) {
  constexpr size_t kBlock = 4096 / sizeof(T);
  const std::integral_constant<Reduction, kReduction> op;
  Computing<T> acc[kBlock];
  for (size_t done = begin; done < count; done += kBlock) {
    const size_t size = std::min(kBlock, count - done);
    const T* const first = static_cast<const T*>(inputs[0]) + done;
    for (size_t i = 0; i < size; ++i) acc[i] = first[i];
    for (size_t rank = 1; rank < ranks; ++rank)
      fold_block(op, acc, static_cast<const T*>(inputs[rank]) + done, size);
    T* const to = static_cast<T*>(out) + done;
    for (size_t i = 0; i < size; ++i) to[i] = static_cast<T>(acc[i]);
  }
}

#undef MX_FOLD_VECTORS
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
#  define MX_FOLD_VECTORS 1
#else
#  define MX_FOLD_VECTORS 0
#endif

#if MX_FOLD_VECTORS
template <class D, class T>
HWY_INLINE hn::Vec<D> load_row(D d, const T* from) {
  if constexpr (std::is_same_v<T, float16>) {
    const hn::Rebind<hwy::float16_t, D> half;
    return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    const hn::Rebind<uint16_t, D> half;
    const hn::Rebind<uint32_t, D> bits;
    const auto loaded = hn::LoadU(half, reinterpret_cast<const uint16_t*>(from));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, loaded)));
  } else {
    return hn::LoadU(d, from);
  }
}

template <class D, class T>
HWY_INLINE void store_row(D d, hn::Vec<D> value, T* to) {
  if constexpr (std::is_same_v<T, float16>) {
    const hn::Rebind<hwy::float16_t, D> half;
    hn::StoreU(hn::DemoteTo(half, value), half, reinterpret_cast<hwy::float16_t*>(to));
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    // float_to_bfloat() of half.h: to nearest, ties to even; a NaN stays a NaN.
    const hn::Rebind<uint32_t, D> du;
    const auto bits = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff)));
    const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
    const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded);
    // Demoting saturates, so the upper halves are moved down with their sign: all values then fit.
    const hn::Rebind<int32_t, D> di;
    const hn::Rebind<int16_t, D> dh;
    const auto upper = hn::ShiftRight<16>(hn::BitCast(di, chosen));
    hn::StoreU(hn::DemoteTo(dh, upper), dh, reinterpret_cast<int16_t*>(to));
  } else {
    hn::StoreU(value, d, to);
  }
}

// The vector form of fold_one(). A comparison with a NaN is false, so the minimum or maximum with a NaN in
// `b` is `b`.
template <Reduction kReduction, class V>
HWY_INLINE V fold_row(V a, V b) {
  if constexpr (kReduction == Reduction::sum) return hn::Add(a, b);
  const auto first = kReduction == Reduction::min ? hn::Lt(a, b) : hn::Gt(a, b);
  return hn::IfThenElse(hn::Or(first, hn::IsNaN(a)), a, b);
}

// Floating point types, which gradients are: all inputs are read once, and four accumulators stay in
// registers. Halves are converted by vector instructions, which compilers do not do with those of half.h.
template <Reduction kReduction, class T>
void fold_vectors(void* out, const void* const* inputs, size_t ranks, size_t count) {
  const hn::ScalableTag<Computing<T>> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const T* from = static_cast<const T*>(inputs[0]) + i;
    auto a = load_row(d, from), b = load_row(d, from + lanes);
    auto c = load_row(d, from + 2 * lanes), e = load_row(d, from + 3 * lanes);
    for (size_t rank = 1; rank < ranks; ++rank) {
      from = static_cast<const T*>(inputs[rank]) + i;
      a = fold_row<kReduction>(a, load_row(d, from));
      b = fold_row<kReduction>(b, load_row(d, from + lanes));
      c = fold_row<kReduction>(c, load_row(d, from + 2 * lanes));
      e = fold_row<kReduction>(e, load_row(d, from + 3 * lanes));
    }
    T* const to = static_cast<T*>(out) + i;
    store_row(d, a, to);
    store_row(d, b, to + lanes);
    store_row(d, c, to + 2 * lanes);
    store_row(d, e, to + 3 * lanes);
  }
  if (i < count) fold_blocks<kReduction, T>(out, inputs, ranks, i, count);
}
#endif

template <Reduction kReduction, class T>
void fold_rows(void* out, const void* const* inputs, size_t ranks, size_t count) {
#if MX_FOLD_VECTORS
  if constexpr (!std::is_integral_v<T>) return fold_vectors<kReduction, T>(out, inputs, ranks, count);
#endif
  fold_blocks<kReduction, T>(out, inputs, ranks, 0, count);
}

using FoldRows = void (*)(void* out, const void* const* inputs, size_t ranks, size_t count);

template <Reduction kReduction>
FoldRows find_type(Type type) {
  switch (type) {
    case Type::f32:
      return fold_rows<kReduction, float>;
    case Type::f64:
      return fold_rows<kReduction, double>;
    case Type::f16:
      return fold_rows<kReduction, float16>;
    case Type::bf16:
      return fold_rows<kReduction, bfloat16>;
    case Type::i8:
      return fold_rows<kReduction, int8_t>;
    case Type::u8:
      return fold_rows<kReduction, uint8_t>;
    case Type::i32:
      return fold_rows<kReduction, int32_t>;
    case Type::i64:
      return fold_rows<kReduction, int64_t>;
  }
  return nullptr;
}

FoldRows find_fold(Type type, Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return find_type<Reduction::sum>(type);
    case Reduction::min:
      return find_type<Reduction::min>(type);
    case Reduction::max:
      return find_type<Reduction::max>(type);
  }
  return nullptr;
}

}  // namespace mx::comm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mx::comm {

namespace {

HWY_EXPORT(find_fold);

}  // namespace

void fold_ranks(void* out, const void* const* inputs, int ranks, size_t count, Type type,
                Reduction reduction) {
  if (count > 0)
    HWY_DYNAMIC_DISPATCH(find_fold)(type, reduction)(out, inputs, static_cast<size_t>(ranks), count);
}

void fold(Reduction reduction, Type type, void* acc, const void* in, size_t count) {
  const void* const inputs[] = {acc, in};
  fold_ranks(acc, inputs, 2, count, type, reduction);
}

}  // namespace mx::comm

#endif
