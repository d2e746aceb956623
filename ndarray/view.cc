// Views: other shapes and strides over the same storage, and basic indexing.
#include <algorithm>
#include <optional>

#include "engine/base/check.h"
#include "ndarray/copy.h"
#include "ndarray/detail/contains.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "ndarray/hooks.h"
#include "ndarray/ndarray.h"

namespace mx {

using detail::ArrayImpl;
using detail::Ref;

namespace {

/// The array through whose node the gradients of a view of `base` go. That is `base`, also if it is a view
/// itself: its hooks then see what flows through views of it. A long row of views goes to its root at once,
/// because nodes of views are looked up recursively.
Ref<ArrayImpl> gradient_base(const NDArray& base) {
  constexpr int kLongestRow = 64;
  const ArrayImpl& from = base.impl();
  if (!from.base || from.has_own_node()) return base.ref();
  if (!from.marked()) return Ref<ArrayImpl>(&base.impl().root());
  int views = 1;
  const ArrayImpl* last = &from;
  for (; last->base->base && !last->base->has_own_node(); last = last->base.get()) ++views;
  return views < kLongestRow ? base.ref() : last->base;
}

/// `beyond`: the view may show elements that `base` does not show.
NDArray make_view(const NDArray& base, const Shape& shape, const Strides& strides, int64_t offset,
                  bool beyond = false) {
  ArrayImpl& from = base.impl();
  NDArray view(ArrayImpl::make(from.storage, from.dtype, shape, strides, offset));
  if (!detail::recording && from.marked()) return view;
  Ref<ArrayImpl> through = gradient_base(base);
  // The gradients of elements that a view does not show cannot flow through the view's node.
  if (beyond)
    while (through->base && !through->has_own_node() && !detail::contains(*through, view.impl()))
      through = through->base;
  view.impl().base = std::move(through);
  if (from.recorded()) detail::hooks().viewed(from, view.impl());
  return view;
}

// A slice, clipped to a dimension.
struct Range {
  int64_t start, step, count;
};

Range cut(const Slice& slice, int64_t size) {
  MX_CHECK(slice.step != 0, InvalidArgument, "[slice] expected a step other than 0, got 0");
  const bool forward = slice.step > 0;
  const auto place = [&](int64_t i) {
    if (i < 0) i += size;
    return std::clamp(i, forward ? int64_t{0} : int64_t{-1}, forward ? size : size - 1);
  };
  const int64_t start = slice.start ? place(*slice.start) : forward ? 0 : size - 1;
  const int64_t stop = slice.stop ? place(*slice.stop) : forward ? size : -1;
  int64_t count = 0;
  if (forward && stop > start) count = (stop - start - 1) / slice.step + 1;
  // -INT64_MIN would overflow.
  if (!forward && start > stop)
    count = (start - stop - 1) / (slice.step == INT64_MIN ? INT64_MAX : -slice.step) + 1;
  return {count > 0 ? start : 0, count > 1 ? int64_t{slice.step} : 1, count};
}

int64_t place_in(int64_t i, int64_t size, int64_t axis, const Shape& shape) {
  MX_CHECK(i >= -size && i < size, InvalidArgument, "[index] expected an index from ", -size, " to ",
           size - 1, " in dimension ", axis, " of shape ", shape, ", got ", i);
  return i < 0 ? i + size : i;
}

/// Returns how many changes the arrays of an index have had in total.
uint64_t changes_of(const detail::AdvancedIndex& index) {
  uint64_t sum = 0;
  index.each_array([&](const NDArray& array) { sum += array.impl().storage->version(); });
  return sum;
}

/// Returns true if the read must not be deferred: one of the arrays may change without being counted, or one
/// is recorded. In the second case the thread's mode at the time of the index decides if the read is
/// recorded.
bool reads_at_once(const detail::AdvancedIndex& index) {
  bool at_once = false;
  index.each_array([&](const NDArray& array) {
    at_once |= array.impl().storage->has_unseen_writers() || array.impl().marked();
  });
  return at_once;
}

/// An indexed read that is done when its value is first used.
struct DeferredGather final : detail::DeferredValue {
  detail::AdvancedIndex index;
  const bool at_once;
  uint64_t changes;  // changes_of(index) at the time of the index

  explicit DeferredGather(const detail::AdvancedIndex& i)
      : DeferredValue(i.base.context()), index(i), at_once(reads_at_once(i)), changes(changes_of(i)) {}

  void fill(ArrayImpl& array) override {
    // The values at the time of the index no longer exist.
    MX_CHECK(changes == changes_of(index), InvalidState,
             "[index] expected the result of indexing with arrays to be used before the array or the indices "
             "change, got a change after the indexing at ",
             index.where.file_name(), ':', index.where.line(),
             "; write `NDArray b = a[indices]`, not `auto`, to copy the elements at once");
    // A read that was deferred is not recorded, because no array was recorded at the time of the index.
    std::optional<NoGrad> unrecorded;
    if (!at_once) unrecorded.emplace();
    const NDArray value = detail::hooks().gather(index);
    ArrayImpl& made = value.impl();
    // No other code has used the array's memory yet, so the array can take over the memory of the value.
    if (made.offset == array.offset && made.strides == array.strides && made.context() == context) {
      array.storage = made.storage;
      if (made.recorded()) array.set_extension(made.extension(), true);
    } else {
      detail::assign(array, made, "index", index.where);
    }
    index = {};
  }
};

struct PutTarget final : View::Target {
  detail::AdvancedIndex index;
  detail::Ref<ArrayImpl> result;

  void assign(const NDArray& source, std::source_location where) override {
    detail::hooks().put(index, source, where);
    // In `b = (a[i] = c)`, b is read after the assignment, so this change does not invalidate the read.
    auto& deferred = static_cast<DeferredGather&>(*result->deferred);
    const std::lock_guard lock(deferred.mutex);
    if (waits()) deferred.changes = changes_of(index);
  }
  void assign(const NumberArg& value) override {
    assign(scalar_array(value.number, index.base.dtype(), index.base.context(), value.where), value.where);
  }
  void settle(uint32_t handles) noexcept override {
    const uint32_t own = handles + 1;
    if (!waits() || result->refs.load(std::memory_order_acquire) <= own) return;
    try {
      NDArray(result).impl();
    } catch (...) {
      // The array stays deferred, and its next use throws the error.
    }
  }
  bool waits() const { return (result->flags.load(std::memory_order_acquire) & detail::kDeferred) != 0; }
};

View advanced(detail::AdvancedIndex index) {
  const detail::Hooks& hooks = detail::hooks();
  MX_CHECK(hooks.gather != nullptr, InvalidState,
           "[index] expected a program with the operators for indexing with arrays, got one without; include "
           "operators/operators.h and link mx::operators");
  const Shape shape = hooks.gather_shape(index);
  auto made = detail::new_array(shape, index.base.dtype(), index.base.context(), "index");
  auto gather = std::make_unique<DeferredGather>(index);
  const bool at_once = gather->at_once;
  made->deferred = std::move(gather);
  made->flags.fetch_or(detail::kDeferred, std::memory_order_relaxed);
  auto target = std::make_shared<PutTarget>();
  target->index = std::move(index);
  target->result = made;
  NDArray result(std::move(made));
  if (at_once) result.impl();
  return View(std::move(result), std::move(target));
}

}  // namespace

NDArray NDArray::as_strided(const Shape& shape, const Strides& strides, IntArg offset,
                            std::source_location where) const try {
  const ArrayImpl& base = impl();
  MX_CHECK(shape.rank() == strides.rank(), InvalidArgument,
           "[as_strided] expected a stride for each dimension of ", shape, ", got ", strides);
  checked_numel(shape, size_of(base.dtype), "as_strided");
  int64_t low = offset, high = offset;
  bool overflow = false, nothing = false;
  for (int i = 0; i < shape.rank(); ++i) {
    nothing = nothing || shape[i] == 0;
    int64_t reach = 0;
    overflow = overflow || __builtin_mul_overflow(shape[i] - 1, strides[i], &reach) ||
               __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high);
  }
  const auto elements = static_cast<int64_t>(base.storage->bytes() / size_of(base.dtype));
  MX_CHECK(nothing || (!overflow && low >= 0 && high < elements), InvalidArgument,
           "[as_strided] expected a view within the ", elements,
           " elements of the array's memory, got shape ", shape, ", strides ", strides, " and offset ",
           offset);
  return make_view(*this, shape, strides, nothing ? int64_t{0} : int64_t{offset}, true);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray NDArray::select(IntArg axis, IntArg i, std::source_location where) const try {
  const ArrayImpl& base = impl();
  const int d = normalize_axis(axis, rank(), "select");
  const int64_t place = place_in(i, base.shape[d], d, base.shape);
  Shape shape = base.shape;
  Strides strides = base.strides;
  shape.erase(d);
  strides.erase(d);
  return make_view(*this, shape, strides, base.offset + place * base.strides[d]);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray NDArray::slice(IntArg axis, const Slice& range, std::source_location where) const try {
  const ArrayImpl& base = impl();
  const int d = normalize_axis(axis, rank(), "slice");
  const Range r = cut(range, base.shape[d]);
  Shape shape = base.shape;
  Strides strides = base.strides;
  shape[d] = r.count;
  strides[d] *= r.step;
  return make_view(*this, shape, strides, base.offset + r.start * base.strides[d]);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray NDArray::transpose(const Shape& axes, std::source_location where) const try {
  const ArrayImpl& base = impl();
  Shape order = axes;
  if (axes.empty())
    for (int i = rank() - 1; i >= 0; --i) order.push_back(i);
  MX_CHECK(order.rank() == rank(), InvalidArgument, "[transpose] expected ", rank(), " axes for shape ",
           base.shape, ", got ", axes);
  Shape shape, strides;
  bool seen[kMaxRank] = {};
  for (int64_t axis : order) {
    const int d = normalize_axis(axis, rank(), "transpose");
    MX_CHECK(!seen[d], InvalidArgument, "[transpose] expected each axis once, got ", axes);
    seen[d] = true;
    shape.push_back(base.shape[d]);
    strides.push_back(base.strides[d]);
  }
  return make_view(*this, shape, strides, base.offset);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray NDArray::swap_axes(IntArg a, IntArg b, std::source_location where) const try {
  const int x = normalize_axis(a, rank(), "swap_axes"), y = normalize_axis(b, rank(), "swap_axes");
  Shape order;
  for (int i = 0; i < rank(); ++i) order.push_back(i == x ? y : i == y ? x : i);
  return rank() == 0 ? *this : transpose(order);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray NDArray::move_axis(IntArg from, IntArg to, std::source_location where) const try {
  const int x = normalize_axis(from, rank(), "move_axis"), y = normalize_axis(to, rank(), "move_axis");
  Shape order;
  for (int i = 0; i < rank(); ++i)
    if (i != x) order.push_back(i);
  order.insert(y, x);
  return transpose(order);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray NDArray::expand_dims(IntArg axis, std::source_location where) const try {
  const ArrayImpl& base = impl();
  const int d = normalize_axis(axis, rank() + 1, "expand_dims");
  Shape shape = base.shape;
  Strides strides = base.strides;
  shape.insert(d, 1);
  strides.insert(d, d < base.shape.rank() ? base.shape[d] * base.strides[d] : 1);
  return make_view(*this, shape, strides, base.offset);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray NDArray::squeeze(IntArg axis, std::source_location where) const try {
  const ArrayImpl& base = impl();
  const int d = normalize_axis(axis, rank(), "squeeze");
  MX_CHECK(base.shape[d] == 1, InvalidArgument, "[squeeze] expected a dimension of size 1 at axis ", axis,
           ", got shape ", base.shape);
  Shape shape = base.shape;
  Strides strides = base.strides;
  shape.erase(d);
  strides.erase(d);
  return make_view(*this, shape, strides, base.offset);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray NDArray::squeeze() const {
  const ArrayImpl& base = impl();
  Shape shape, strides;
  for (int i = 0; i < base.shape.rank(); ++i) {
    if (base.shape[i] == 1) continue;
    shape.push_back(base.shape[i]);
    strides.push_back(base.strides[i]);
  }
  return make_view(*this, shape, strides, base.offset);
}

NDArray NDArray::broadcast_to(const Shape& target, std::source_location where) const try {
  const ArrayImpl& base = impl();
  checked_numel(target, size_of(base.dtype), "broadcast_to");
  MX_CHECK(
      base.shape.rank() <= target.rank() && broadcast_shapes(base.shape, target, "broadcast_to") == target,
      InvalidArgument, "[broadcast_to] expected a shape that ", base.shape, " broadcasts to, got ", target);
  return make_view(*this, target, broadcast_strides(base.shape, base.strides, target), base.offset);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray NDArray::diagonal(IntArg offset, IntArg axis1, IntArg axis2, std::source_location where) const try {
  const ArrayImpl& base = impl();
  const int x = normalize_axis(axis1, rank(), "diagonal"), y = normalize_axis(axis2, rank(), "diagonal");
  MX_CHECK(x != y, InvalidArgument, "[diagonal] expected two different axes, got ", axis1, " and ", axis2);
  const int64_t shift = std::clamp<int64_t>(offset, -base.shape[x], base.shape[y]);
  const int64_t rows = base.shape[x] - (shift < 0 ? -shift : 0),
                columns = base.shape[y] - (shift > 0 ? shift : 0);
  const int64_t count = std::max<int64_t>(0, std::min(rows, columns));
  Shape shape, strides;
  for (int i = 0; i < base.shape.rank(); ++i) {
    if (i == x || i == y) continue;
    shape.push_back(base.shape[i]);
    strides.push_back(base.strides[i]);
  }
  shape.push_back(count);
  strides.push_back(base.strides[x] + base.strides[y]);
  const int64_t start = count == 0 ? 0 : shift < 0 ? -shift * base.strides[x] : shift * base.strides[y];
  return make_view(*this, shape, strides, base.offset + start);
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray NDArray::reshape(const Shape& wanted, std::source_location where) const try {
  const ArrayImpl& base = impl();
  Shape shape = wanted;
  int64_t known = 1;
  int open = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1 && open < 0) {
      open = i;
      continue;
    }
    MX_CHECK(shape[i] >= 0, InvalidArgument,
             "[reshape] expected sizes of 0 or more, and at most one -1, got ", wanted);
    MX_CHECK(!__builtin_mul_overflow(known, shape[i], &known), InvalidArgument,
             "[reshape] expected a shape with as many elements as ", base.shape, ", got ", wanted);
  }
  const int64_t n = base.shape.numel();
  if (open >= 0) {
    MX_CHECK(known != 0 && n % known == 0, InvalidArgument,
             "[reshape] expected sizes whose product divides the ", n, " elements of ", base.shape, ", got ",
             wanted);
    shape[open] = n / known;
  } else {
    MX_CHECK(known == n, InvalidArgument, "[reshape] expected a shape with as many elements as ", base.shape,
             ", got ", wanted);
  }
  if (base.contiguous()) return make_view(*this, shape, contiguous_strides(shape), base.offset);
  // Groups old and new dimensions into blocks with the same number of elements. A view is possible if the old
  // dimensions of each block lie in memory without gaps, because then the new ones can divide the block.
  Strides strides = Strides::filled(shape.rank(), 1);
  bool fits = n > 0;
  int i = 0, j = 0;
  while (fits && i < base.shape.rank() && j < shape.rank()) {
    int64_t old_size = base.shape[i], new_size = shape[j];
    int old_end = i + 1, new_end = j + 1;
    while (old_size != new_size) {
      if (old_size < new_size) {
        old_size *= base.shape[old_end++];
      } else {
        new_size *= shape[new_end++];
      }
    }
    int64_t inner = 0;  // stride of the block's innermost dimension of more than one element
    int64_t expected = -1;
    for (int k = old_end - 1; k >= i && fits; --k) {
      if (base.shape[k] == 1) continue;
      if (expected < 0 && inner == 0) {
        inner = base.strides[k];
        expected = 1;
      } else {
        fits = base.strides[k] == inner * expected;
      }
      expected *= base.shape[k];
    }
    int64_t step = inner;
    for (int k = new_end - 1; k >= j; --k) {
      strides[k] = step;
      step *= shape[k];
    }
    i = old_end;
    j = new_end;
  }
  if (!fits) return clone(where).reshape(shape);
  return make_view(*this, shape, strides, base.offset);
} catch (const Error&) {
  detail::rethrow_at(where);
}

View NDArray::entry(int64_t i) const {
  MX_CHECK(rank() > 0, InvalidArgument,
           "[index] expected an array of rank 1 or more, got one of rank 0 and index ", i);
  return View(select(0, i));
}

View NDArray::operator[](const Arg& index) const { return (*this)[{Index(index.array, index.where)}]; }

RowIterator NDArray::begin() const {
  MX_CHECK(rank() > 0, InvalidArgument, "[iterate] expected an array of rank 1 or more, got one of rank 0");
  return {*this, 0};
}

RowIterator NDArray::end() const { return begin() + (rank() > 0 ? shape()[0] : 0); }

View NDArray::operator[](std::initializer_list<Index> entries) const {
  return (*this)[std::span<const Index>(entries.begin(), entries.size())];
}

View NDArray::operator[](std::span<const Index> entries) const try {
  const ArrayImpl& base = impl();
  int consumed = 0, ellipses = 0, numbers = 0, array_count = 0;
  bool arrays = false;
  std::source_location where;
  for (const Index& entry : entries) {
    numbers += std::holds_alternative<int64_t>(entry.value()) ? 1 : 0;
    if (const auto* array = std::get_if<const NDArray*>(&entry.value())) {
      consumed += (*array)->dtype() == bool_ ? (*array)->rank() : 1;
      ++array_count;
      arrays = true;
      where = entry.where();
    } else if (std::holds_alternative<Ellipsis>(entry.value())) {
      ++ellipses;
    } else if (!std::holds_alternative<NewAxis>(entry.value())) {
      ++consumed;
    }
  }
  MX_CHECK(ellipses <= 1, InvalidArgument, "[index] expected one ellipsis at most, got ", ellipses);
  MX_CHECK(consumed <= base.shape.rank(), InvalidArgument, "[index] expected at most ", base.shape.rank(),
           " indices for shape ", base.shape, ", got ", consumed);
  const int rest = base.shape.rank() - consumed;
  Shape shape, strides;
  detail::FixedList<NDArray, kMaxRank> indices;
  // The mask is the only array, and there is no number, which would count as an array of rank 0.
  const bool only_mask = array_count == 1 && numbers == 0;
  NDArray mask;
  int mask_axis = 0;
  bool empty_ellipsis = false, separated = false;
  int64_t offset = base.offset;
  int d = 0;
  const auto keep = [&](int64_t size, int64_t stride) {
    shape.push_back(size);
    strides.push_back(stride);
    indices.push_back({});
  };
  const auto keep_all = [&](int n) {
    for (int k = 0; k < n; ++k, ++d) keep(base.shape[d], base.strides[d]);
  };
  for (const Index& entry : entries) {
    const bool advances = std::holds_alternative<int64_t>(entry.value()) ||
                          std::holds_alternative<const NDArray*>(entry.value());
    separated = separated || (empty_ellipsis && advances);
    if (const int64_t* i = std::get_if<int64_t>(&entry.value())) {
      const int64_t place = place_in(*i, base.shape[d], d, base.shape);
      if (arrays) {
        // If there are arrays, a number counts as an array of rank 0: its position affects the order of the
        // result's dimensions.
        keep(base.shape[d], base.strides[d]);
        indices.back() = scalar_array(*i, i64, context(), where);
      } else {
        offset += place * base.strides[d];
      }
      ++d;
    } else if (const Slice* slice = std::get_if<Slice>(&entry.value())) {
      const Range r = cut(*slice, base.shape[d]);
      offset += r.start * base.strides[d];
      keep(r.count, base.strides[d] * r.step);
      ++d;
    } else if (std::holds_alternative<Ellipsis>(entry.value())) {
      const bool after_array =
          std::any_of(indices.begin(), indices.end(), [](const NDArray& a) { return a.defined(); });
      empty_ellipsis = rest == 0 && after_array;
      keep_all(rest);
    } else if (std::holds_alternative<NewAxis>(entry.value())) {
      keep(1, 0);
    } else {
      const NDArray& array = *std::get<const NDArray*>(entry.value());
      MX_CHECK(!is_floating(array.dtype()), InvalidArgument,
               "[index] expected integers or bool, got an index of ", array.dtype());
      if (array.dtype() != bool_) {
        keep(base.shape[d], base.strides[d]);
        indices.back() = array.to(context(), where);
        ++d;
        continue;
      }
      for (int k = 0; k < array.rank(); ++k)
        MX_CHECK(array.shape()[k] == base.shape[d + k], InvalidArgument,
                 "[index] expected a mask with the sizes of shape ", base.shape, " from dimension ", d,
                 " on, got shape ", array.shape());
      MX_CHECK(detail::hooks().nonzero != nullptr, InvalidState,
               "[index] expected a program with the operators for indexing with arrays, got one without; "
               "include operators/operators.h and link mx::operators");
      if (only_mask && array.rank() > 0) {
        mask = array.to(context(), where);
        mask_axis = shape.rank();
        keep_all(array.rank());
        continue;
      }
      for (const NDArray& positions : detail::hooks().nonzero(array, where)) {
        keep(base.shape[d], base.strides[d]);
        indices.back() = positions.to(context(), where);
        ++d;
      }
    }
  }
  keep_all(base.shape.rank() - d);
  NDArray view = make_view(*this, shape, strides, offset);
  if (!arrays) return View(std::move(view));
  detail::AdvancedIndex index;
  index.base = std::move(view);
  index.separated = separated;
  index.where = where;
  if (mask.defined()) {
    index.mask_count = detail::hooks().count(mask, where);
    index.mask_axis = mask_axis;
    index.mask = std::move(mask);
  } else {
    index.indices = std::move(indices);
  }
  return advanced(std::move(index));
} catch (const Error&) {
  detail::rethrow_at(entries.empty() ? std::source_location() : entries[0].where());
}

View::View(const View& other) : NDArray(other), target_(other.target_) {
  if (target_ != nullptr) impl();
}

View& View::operator=(const NDArray& array) & { return *this = View(array); }
View& View::operator=(const View& other) & { return *this = View(other); }

View& View::operator=(View&& other) & {
  if (this == &other) return *this;
  View before = std::move(*this);  // destroyed on return; it may be the last View of its target
  NDArray::operator=(std::move(other));
  target_ = std::move(other.target_);
  return *this;
}

const View& View::operator=(const Arg& source) && {
  if (target_ != nullptr) {
    target_->assign(source.array, source.where);
  } else {
    detail::assign(impl(), source.array.impl(), "assign", source.where);
  }
  return *this;
}

const View& View::operator=(const NumberArg& value) && {
  if (target_ != nullptr) {
    target_->assign(value);
  } else {
    fill_(value.number, value.where);
  }
  return *this;
}

}  // namespace mx
