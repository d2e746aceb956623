#include "operators/kernels/random_words.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/random_words.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h, which includes this file once per target.
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::detail::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most this many lanes: on processors with scalable vectors the slack needs a bound.
using Words = hn::CappedTag<uint32_t, 16>;
using Longs = hn::CappedTag<uint64_t, 8>;
using Floats = hn::CappedTag<float, 16>;
using Doubles = hn::CappedTag<double, 8>;

struct Product {
  hn::Vec<Words> high, low;
};

HWY_INLINE Product multiply(hn::Vec<Words> a, hn::Vec<Words> b) {
  const Words d;
#if HWY_TARGET == HWY_SCALAR
  const uint64_t product = uint64_t{hn::GetLane(a)} * hn::GetLane(b);
  return {hn::Set(d, static_cast<uint32_t>(product >> 32)), hn::Set(d, static_cast<uint32_t>(product))};
#else
  const Longs wide;
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), b);
  return {hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even))),
          hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even))};
#endif
}

void words_of(uint64_t seed, uint64_t first, uint32_t kind, int64_t blocks, uint32_t* words) {
  const Words d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  const auto lane = hn::Iota(d, 0u);
  for (int64_t i = 0; i < blocks; i += lanes) {
    const uint64_t block = first + static_cast<uint64_t>(i);
    auto c0 = hn::Add(hn::Set(d, static_cast<uint32_t>(block)), lane);
    const auto carry = hn::VecFromMask(d, hn::Lt(c0, lane));
    auto c1 = hn::Sub(hn::Set(d, static_cast<uint32_t>(block >> 32)), carry);
    auto c2 = hn::Set(d, kind), c3 = hn::Zero(d);
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const Product a = multiply(c0, m0), b = multiply(c2, m1);
      c0 = hn::Xor(hn::Xor(b.high, c1), hn::Set(d, k0));
      c2 = hn::Xor(hn::Xor(a.high, c3), hn::Set(d, k1));
      c1 = b.low;
      c3 = a.low;
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    hn::StoreInterleaved4(c0, c1, c2, c3, d, words + 4 * i);
  }
}

void uniform32(const uint32_t* words, int64_t n, float* values) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const hn::RebindToUnsigned<Floats> du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    const auto bits = hn::BitCast(di, hn::ShiftRight<8>(hn::LoadU(du, words + i)));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, bits), hn::Set(d, 0x1p-24f)), d, values + i);
  }
}

/// Loads pairs of words as 64-bit numbers; the first word is the low half.
HWY_INLINE hn::Vec<Longs> load_longs(const uint32_t* words) {
  const Longs d;
#if HWY_TARGET == HWY_SCALAR
  uint64_t bits;
  std::memcpy(&bits, words, sizeof bits);
  return hn::Set(d, bits);
#else
  return hn::BitCast(d, hn::LoadU(hn::Repartition<uint32_t, Longs>(), words));
#endif
}

/// The upper 53 bits of each, as double.
HWY_INLINE hn::Vec<Doubles> load53(const uint32_t* words) {
  const Doubles d;
  const hn::RebindToSigned<Doubles> di;
  return hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<11>(load_longs(words))));
}

void uniform64(const uint32_t* words, int64_t n, double* values) {
  const Doubles d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes)
    hn::StoreU(hn::Mul(load53(words + 2 * i), hn::Set(d, 0x1p-53)), d, values + i);
}

void exponential64(const uint32_t* words, int64_t n, double* values) {
  const Doubles d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    const auto u = hn::Mul(hn::Add(load53(words + 2 * i), hn::Set(d, 0.5)), hn::Set(d, 0x1p-53));
    hn::StoreU(hn::Neg(hn::Log(d, u)), d, values + i);
  }
}

template <class D, class V>
HWY_INLINE void store_pairs(D d, V uniform, V angle, hn::TFromD<D>* values) {
  const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, hn::TFromD<D>(-2)), hn::Log(d, uniform)));
  hn::StoreInterleaved2(hn::Mul(radius, hn::Cos(d, angle)), hn::Mul(radius, hn::Sin(d, angle)), d, values);
}

void normal32(const uint32_t* words, int64_t n, float* values) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const hn::RebindToUnsigned<Floats> du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += 2 * lanes) {
    hn::Vec<decltype(du)> a, b;
    hn::LoadInterleaved2(du, words + i, a, b);
    // 31 bits. A float keeps their leading 24, so that small numbers, which make up the tail, keep all their
    // bits.
    const auto whole = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<1>(a)));
    const auto uniform = hn::Mul(hn::Add(whole, hn::Set(d, 0.5f)), hn::Set(d, 0x1p-31f));
    const auto angle =
        hn::Mul(hn::ConvertTo(d, hn::BitCast(di, b)), hn::Set(d, 1.46291808e-9f));  // 2 pi / 2^32
    store_pairs(d, uniform, angle, values + i);
  }
}

void normal64(const uint32_t* words, int64_t n, double* values) {
  const Doubles d;
  const hn::RebindToSigned<Doubles> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += 2 * lanes) {
#if HWY_TARGET == HWY_SCALAR
    const auto a = load_longs(words + 2 * i), b = load_longs(words + 2 * i + 2);
#else
    const auto x = load_longs(words + 2 * i), y = load_longs(words + 2 * (i + lanes));
    const auto a = hn::ConcatEven(Longs(), y, x), b = hn::ConcatOdd(Longs(), y, x);
#endif
    const auto whole = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<11>(a)));
    const auto uniform = hn::Mul(hn::Add(whole, hn::Set(d, 0.5)), hn::Set(d, 0x1p-53));
    const auto turn = hn::ConvertTo(d, hn::ShiftRight<11>(hn::BitCast(di, b)));
    store_pairs(d, uniform, hn::Mul(turn, hn::Set(d, 6.283185307179586 * 0x1p-53)), values + i);
  }
}

}  // namespace mx::kernels::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels::detail {

HWY_EXPORT(words_of);
HWY_EXPORT(uniform32);
HWY_EXPORT(uniform64);
HWY_EXPORT(normal32);
HWY_EXPORT(normal64);
HWY_EXPORT(exponential64);

void random_words(uint64_t seed, uint64_t first, uint32_t kind, int64_t blocks, uint32_t* words) {
  HWY_DYNAMIC_DISPATCH(words_of)(seed, first, kind, blocks, words);
}
void to_uniform(const uint32_t* words, int64_t n, float* values) {
  HWY_DYNAMIC_DISPATCH(uniform32)(words, n, values);
}
void to_uniform(const uint32_t* words, int64_t n, double* values) {
  HWY_DYNAMIC_DISPATCH(uniform64)(words, n, values);
}
void to_normal(const uint32_t* words, int64_t n, float* values) {
  HWY_DYNAMIC_DISPATCH(normal32)(words, n, values);
}
void to_normal(const uint32_t* words, int64_t n, double* values) {
  HWY_DYNAMIC_DISPATCH(normal64)(words, n, values);
}
void to_exponential(const uint32_t* words, int64_t n, double* values) {
  HWY_DYNAMIC_DISPATCH(exponential64)(words, n, values);
}

}  // namespace mx::kernels::detail
#endif
