// NDArray: an array of numbers of one type, on one device, computed when it is needed.
//
//   NDArray a = ones({2, 3}) * 2;       // returns at once
//   a[0] = 7;                           // so does this, and it is ordered after what came before
//   std::cout << a << '\n';             // waits
//
// A handle: copying one makes another name of the same array, and `x = e` gives the name x to another array,
// also where x was made by indexing (`NDArray row = a[0]; row = e`). `a[i] = e`, `a += e` and functions that
// end in `_` change the array for every handle to it. clone() copies. Views (slices, transposes, reshapes)
// share memory with their base. Operands may overlap: results are as if they had been copied first.
//
// Reading values (item, to_vector, printing, data) waits for the operations that make them, and throws the
// error of the one that failed. Everything else returns at once.
//
// Thread-safety: as for std::shared_ptr. One handle must not be assigned while another thread uses it; any
// number of handles to one array may be used from any threads, and operations take effect in the order in
// which they were called.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ndarray/axes.h"
#include "ndarray/detail/array_impl.h"
#include "ndarray/dtype.h"
#include "ndarray/hook_handle.h"
#include "ndarray/index.h"
#include "ndarray/nested.h"
#include "ndarray/scalar.h"
#include "ndarray/shape.h"

namespace mx {

class View;
class NDArray;
class RowIterator;
struct Arg;
struct PrintOptions;

/// What backward() does with the gradient of an array: replace what is there, add to it, or nothing.
enum class GradReq : uint8_t { null, write, add };

struct BackwardOptions {
  bool retain_graph = false;  ///< keep the saved values, so that a second backward pass is possible
  /// Record the backward pass too, so that gradients have gradients; implies retain_graph. What grad() holds
  /// then has a graph, which lives as long as that gradient.
  bool create_graph = false;
};

/// Called with a gradient during a backward pass. The array it returns replaces the gradient; an empty handle
/// keeps it.
using GradHook = std::function<NDArray(const NDArray& gradient)>;

class NDArray {
 public:
  /// No array: only assigning, copying, defined() and destroying are allowed.
  NDArray() = default;
  NDArray(const NDArray&) = default;
  NDArray(NDArray&&) = default;
  /// Names another array. Not for a temporary, of which nothing would remain: `a.transpose() = e` does not
  /// compile; write a.transpose().copy_from(e).
  NDArray& operator=(const NDArray&) & = default;
  NDArray& operator=(NDArray&&) & = default;

  bool defined() const { return static_cast<bool>(impl_); }

  const Shape& shape() const { return handle().shape; }
  const Strides& strides() const { return handle().strides; }  ///< in elements
  DType dtype() const { return handle().dtype; }
  Context context() const {
    const detail::ArrayImpl& array = handle();
    return array.deferred != nullptr ? array.deferred->context : array.context();
  }
  int rank() const { return shape().rank(); }
  int64_t numel() const { return shape().numel(); }
  int64_t size(IntArg axis) const { return shape()[normalize_axis(axis, rank(), "size")]; }
  size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype()); }
  bool contiguous() const { return handle().contiguous(); }
  /// Do both share their memory?
  bool shares_memory(const NDArray& other) const;

  // Views. They throw InvalidArgument for axes and sizes that do not fit.

  /// Entry i of the first dimension. A negative i counts from the end; one that an int64_t does not hold is
  /// out of range. It is a template so that the list of one number, a[{i}], calls the overload for lists.
  template <detail::IndexNumber T>
  View operator[](T i) const;
  template <std::same_as<bool> T>
  View operator[](T i) const = delete;
  /// a[Slice{0, 5}], a[colon], a[ellipsis], a[newaxis].
  template <class T>
  requires(std::same_as<T, Slice> || std::same_as<T, Ellipsis> || std::same_as<T, NewAxis>) View operator[](
      const T& entry) const;
  /// One entry per dimension: a[{0, colon, Slice{1, 5}}]. With arrays among them it is advanced indexing as
  /// NumPy defines it, whose result is a copy (assigning to it still changes this array).
  View operator[](std::initializer_list<Index> index) const;
  /// The same from entries that a program has put together.
  View operator[](std::span<const Index> index) const;
  /// Advanced indexing with one array: integers pick rows, bool (of this shape, or of its first dimensions)
  /// picks elements.
  View operator[](const Arg& index) const;
  /// The entries of the first dimension, as views: `for (NDArray row : a) row.fill_(0)` changes a, and
  /// `row = e` only the name row. Throws InvalidArgument for an array of rank 0.
  RowIterator begin() const;
  RowIterator end() const;
  NDArray select(IntArg axis, IntArg i) const;
  NDArray slice(IntArg axis, const Slice& range) const;
  /// Dimensions in another order; none given: reversed.
  NDArray transpose(const Shape& axes = {}) const;
  NDArray swap_axes(IntArg a, IntArg b) const;
  NDArray move_axis(IntArg from, IntArg to) const;
  NDArray expand_dims(IntArg axis) const;
  /// Without the dimension `axis`, which must be 1; without an argument, without all that are 1.
  NDArray squeeze(IntArg axis) const;
  NDArray squeeze() const;
  NDArray broadcast_to(const Shape& shape) const;
  NDArray diagonal(IntArg offset = 0, IntArg axis1 = 0, IntArg axis2 = 1) const;
  /// Same elements, other sizes; one of them may be -1. A view where the strides allow it, else a copy.
  NDArray reshape(const Shape& shape, std::source_location where = std::source_location::current()) const;
  NDArray flatten(std::source_location where = std::source_location::current()) const {
    return reshape({-1}, where);
  }
  /// The general view: the caller answers for it staying inside the memory (checked) and meaning something.
  NDArray as_strided(const Shape& shape, const Strides& strides, IntArg offset) const;

  // The functions of operators/ with these names, as members: x.mean(1) is mean(x, 1). (The function var() is
  // variance() here, because var() is the engine's variable.) They throw InvalidState in a program without
  // operators (operators/operators.h).

  /// transpose(): a view.
  NDArray T() const { return transpose(); }
  NDArray sum(const Axes& axes = {}, bool keep_dims = false, std::optional<DType> dtype = {},
              std::source_location where = std::source_location::current()) const;
  NDArray prod(const Axes& axes = {}, bool keep_dims = false, std::optional<DType> dtype = {},
               std::source_location where = std::source_location::current()) const;
  NDArray mean(const Axes& axes = {}, bool keep_dims = false, std::optional<DType> dtype = {},
               std::source_location where = std::source_location::current()) const;
  NDArray max(const Axes& axes = {}, bool keep_dims = false,
              std::source_location where = std::source_location::current()) const;
  NDArray min(const Axes& axes = {}, bool keep_dims = false,
              std::source_location where = std::source_location::current()) const;
  NDArray argmax(const Axes& axes = {}, bool keep_dims = false,
                 std::source_location where = std::source_location::current()) const;
  NDArray argmin(const Axes& axes = {}, bool keep_dims = false,
                 std::source_location where = std::source_location::current()) const;
  NDArray any(const Axes& axes = {}, bool keep_dims = false,
              std::source_location where = std::source_location::current()) const;
  NDArray all(const Axes& axes = {}, bool keep_dims = false,
              std::source_location where = std::source_location::current()) const;
  NDArray count_nonzero(const Axes& axes = {}, bool keep_dims = false,
                        std::source_location where = std::source_location::current()) const;
  NDArray ptp(const Axes& axes = {}, bool keep_dims = false,
              std::source_location where = std::source_location::current()) const;
  NDArray median(const Axes& axes = {}, bool keep_dims = false,
                 std::source_location where = std::source_location::current()) const;
  NDArray variance(const Axes& axes = {}, RealArg correction = 1, bool keep_dims = false,
                   std::source_location where = std::source_location::current()) const;
  NDArray stddev(const Axes& axes = {}, RealArg correction = 1, bool keep_dims = false,
                 std::source_location where = std::source_location::current()) const;
  NDArray norm(RealArg p = 2, const Axes& axes = {}, bool keep_dims = false,
               std::source_location where = std::source_location::current()) const;
  NDArray cumsum(IntArg axis = 0, std::source_location where = std::source_location::current()) const;
  NDArray cumprod(IntArg axis = 0, std::source_location where = std::source_location::current()) const;
  NDArray sort(IntArg axis = -1, bool descending = false,
               std::source_location where = std::source_location::current()) const;
  NDArray argsort(IntArg axis = -1, bool descending = false,
                  std::source_location where = std::source_location::current()) const;
  NDArray abs(std::source_location where = std::source_location::current()) const;
  NDArray sign(std::source_location where = std::source_location::current()) const;
  NDArray square(std::source_location where = std::source_location::current()) const;
  NDArray sqrt(std::source_location where = std::source_location::current()) const;
  NDArray exp(std::source_location where = std::source_location::current()) const;
  NDArray log(std::source_location where = std::source_location::current()) const;
  NDArray sin(std::source_location where = std::source_location::current()) const;
  NDArray cos(std::source_location where = std::source_location::current()) const;
  NDArray tanh(std::source_location where = std::source_location::current()) const;
  NDArray sigmoid(std::source_location where = std::source_location::current()) const;
  NDArray relu(std::source_location where = std::source_location::current()) const;
  NDArray pow(Scalar exponent, std::source_location where = std::source_location::current()) const;
  NDArray clamp(Scalar low, Scalar high, std::source_location where = std::source_location::current()) const;
  NDArray clip(Scalar low, Scalar high, std::source_location where = std::source_location::current()) const;
  NDArray round(IntArg decimals = 0, std::source_location where = std::source_location::current()) const;
  NDArray matmul(const NDArray& other, std::source_location where = std::source_location::current()) const;
  NDArray dot(const NDArray& other, std::source_location where = std::source_location::current()) const;

  // Copies.

  NDArray clone(std::source_location where = std::source_location::current()) const;
  /// This array if it is contiguous, else a contiguous copy.
  NDArray to_contiguous(std::source_location where = std::source_location::current()) const;
  /// On that device: this array if it is there already.
  NDArray to(Context context, std::source_location where = std::source_location::current()) const;
  /// With elements of that type: this array if it has them already.
  NDArray to(DType dtype, std::source_location where = std::source_location::current()) const;

  // Changes in place. Types and devices are converted, shapes broadcast to this one's.

  NDArray& copy_from(const NDArray& source, std::source_location where = std::source_location::current());
  /// Throws InvalidArgument, which names the number and the type, for a number that dtype() cannot hold
  /// (fits() in scalar.h); so do `a[i] = number` and full().
  NDArray& fill_(Scalar value, std::source_location where = std::source_location::current());

  // Gradients (docs/autograd.md). They throw InvalidState when automatic differentiation is not linked
  // (executor/autograd/autograd.h, mx::executor).

  /// From now on operations on this array are recorded, and backward() brings its gradient. For arrays of
  /// floating point that are not results of recorded operations. GradReq::null: it brings none, but what
  /// depends on the array is recorded. false: nothing is recorded any more.
  NDArray& requires_grad_(bool on = true);
  NDArray& requires_grad_(GradReq req);
  /// Returns whether operations on it are recorded: after requires_grad_(), and for recorded results.
  bool requires_grad() const { return impl().marked(); }
  /// d(loss)/d(this), as backward() left it; an empty handle before.
  NDArray grad() const;
  /// An empty handle: none.
  void set_grad(const NDArray& grad) const;
  /// Keeps the gradient of a result too.
  const NDArray& retain_grad() const;
  /// Calls the hook with this array's gradient in every backward pass (backward(), gradients(), grad()), on
  /// the thread of the pass. Hooks run in the order in which they were added; the handle removes one.
  HookHandle add_grad_hook(GradHook hook) const;
  /// Adds d(this)/d(x) to x.grad() for every x with requires_grad_() that this depends on, by going back
  /// through what was recorded. `head` is d(loss)/d(this), and may be left out for one element. Returns when
  /// everything is pushed. Throws InvalidArgument for a head that does not fit, InvalidState when nothing was
  /// recorded, when it has been gone through before, and when a value that is needed has been changed in
  /// place since.
  void backward(const NDArray& head = {}, const BackwardOptions& options = {}) const;
  void backward(const BackwardOptions& options) const { backward({}, options); }
  /// The same memory, not recorded.
  NDArray detach() const;

  // Values: these wait.

  /// The only element. Throws InvalidArgument when there are more or none, when T is not what dtype()
  /// converts to without loss of category (an array of floats has no item<int>()), and when T cannot hold the
  /// value (300 as uint8_t, 1e300 as float).
  template <class T>
  T item() const;
  /// All elements in row-major order, converted to T.
  template <class T>
  std::vector<T> to_vector() const;
  /// Is the only element not zero? For conditions.
  explicit operator bool() const { return truth(); }

  /// Blocks until the operations that set the array have ended; throws what went wrong with them.
  void wait() const;
  /// The same with a limit; false when it passed first.
  bool wait(IntArg timeout_ms) const;

  /// The first element in the host's memory. Valid as long as the array lives. Throws InvalidArgument on a
  /// device and for another T.
  ///
  /// data() waits for the operations called before that set the array, mutable_data() also for those that
  /// read it. So what they do is as if it came before the use of the pointer. Operations that are called
  /// later may run while the pointer is used: the caller waits for them, or asks for the pointer again.
  template <class T>
  const T* data() const;
  template <class T>
  T* mutable_data();

  /// The engine's variable of the memory, for operations pushed by hand. From then on every operation on the
  /// memory is pushed, small ones too, so that all keep their order.
  Var var() const;

  // For operators and the layers above.
  explicit NDArray(detail::Ref<detail::ArrayImpl> impl) : impl_(std::move(impl)) {}
  /// Ready to be used by an operation. Throws InvalidArgument when there is no array.
  detail::ArrayImpl& impl() const {
    detail::ArrayImpl& array = handle();
    if ((array.flags.load(std::memory_order_acquire) & detail::kDeferred) != 0) [[unlikely]]
      resolve();
    return array;
  }
  const detail::Ref<detail::ArrayImpl>& ref() const { return impl_; }

 private:
  detail::ArrayImpl& handle() const {
    if (!impl_) [[unlikely]]
      throw_undefined();
    return *impl_;
  }
  [[noreturn]] static void throw_undefined();
  void resolve() const;
  View entry(int64_t i) const;
  bool truth() const;
  /// Copies all elements as `dtype`, row-major, to `target`.
  void read(void* target, DType dtype, const char* op) const;
  /// The only element as `dtype`, to `target`.
  void read_item(void* target, DType dtype) const;
  void* host_data(DType dtype, bool write) const;

  detail::Ref<detail::ArrayImpl> impl_;
};

/// An array argument and the place of the call, which errors name.
struct Arg {
  const NDArray& array;
  std::source_location where;

  Arg(const NDArray& a, std::source_location w = std::source_location::current()) : array(a), where(w) {}
};

/// A number as an argument, and the place of the call.
struct NumberArg {
  Scalar number;
  std::source_location where;

  template <class T>
  requires std::is_convertible_v<T, Scalar> NumberArg(
      T n, std::source_location w = std::source_location::current())
      : number(n), where(w) {}
};

/// What indexing gives: an array, and, as long as it has no name, a place that can be assigned to.
///
///   a[i] = e;   a[i] += e;         // write into a
///   auto row = a[0];               // a handle, as NDArray row = a[0] is
///   row = a[2];                    // names another array, and changes neither
///   row.fill_(3);  row.copy_from(e);  row += 1;   // change the array that row is: for a[0] the memory of a
///
/// The result of an index with arrays is a copy, so the last line changes nothing in `a` then. A handle of
/// another type (NDArray b = a[indices]) has the values of that line. A View that keeps its name (auto b =
/// a[indices]) is read when it is first used, because `a[indices] = e` needs no reading. If `a` or the
/// indices have been changed by then, using it throws InvalidState.
class View : public NDArray {
 public:
  explicit View(NDArray view) : NDArray(std::move(view)) {}
  /// A copy stays, so what an index with arrays reads is read now.
  View(const View& other);
  View(View&&) = default;
  ~View() {
    if (target_ != nullptr && target_.use_count() == 1) target_->settle(ref() ? 1 : 0);
  }

  /// Writes into the base.
  const View& operator=(const Arg& source) &&;
  const View& operator=(const NumberArg& value) &&;

  /// Names another array.
  View& operator=(const NDArray& array) &;
  View& operator=(const View& other) &;
  View& operator=(View&& other) &;

  /// Is it the result of indexing with arrays, so that changing its memory does not change the base?
  bool advanced() const { return target_ != nullptr; }

  /// Where an index with arrays puts what is assigned. Internal.
  struct Target {
    virtual ~Target() = default;
    virtual void assign(const NDArray& source, std::source_location where) = 0;
    virtual void assign(const NumberArg& value) = 0;
    /// The last View goes; `handles` of them to the array are its own.
    virtual void settle(uint32_t handles) noexcept = 0;
  };
  View(NDArray view, std::shared_ptr<Target> target) : NDArray(std::move(view)), target_(std::move(target)) {}

 private:
  std::shared_ptr<Target> target_;
};

// Creation. Sizes that are negative or too large throw InvalidArgument; memory is allocated when it is first
// used.

/// Elements with any value.
NDArray empty(const Shape& shape, DType dtype = f32, Context context = cpu());
NDArray zeros(const Shape& shape, DType dtype = f32, Context context = cpu(),
              std::source_location where = std::source_location::current());
NDArray ones(const Shape& shape, DType dtype = f32, Context context = cpu(),
             std::source_location where = std::source_location::current());
NDArray full(const Shape& shape, Scalar value, DType dtype = f32, Context context = cpu(),
             std::source_location where = std::source_location::current());
NDArray empty_like(const NDArray& a);
NDArray zeros_like(const NDArray& a, std::source_location where = std::source_location::current());
NDArray ones_like(const NDArray& a, std::source_location where = std::source_location::current());
NDArray full_like(const NDArray& a, Scalar value,
                  std::source_location where = std::source_location::current());
/// 0, 1, ..., stop - 1; i64, or f32 when a number given is not an integer.
NDArray arange(Scalar stop, std::source_location where = std::source_location::current());
/// The same of a given type: arange(10, f32), arange(2, 10, f32).
NDArray arange(Scalar stop, DType dtype, Context context = cpu(),
               std::source_location where = std::source_location::current());
NDArray arange(Scalar start, Scalar stop, DType dtype, Context context = cpu(),
               std::source_location where = std::source_location::current());
/// start, start + step, ... before stop.
NDArray arange(Scalar start, Scalar stop, Scalar step = 1,
               std::source_location where = std::source_location::current());
NDArray arange(Scalar start, Scalar stop, Scalar step, DType dtype, Context context = cpu(),
               std::source_location where = std::source_location::current());
/// `count` numbers from start to stop, both included.
NDArray linspace(double start, double stop, IntArg count, DType dtype = f32, Context context = cpu(),
                 std::source_location where = std::source_location::current());
/// Ones on the diagonal, zeros elsewhere; `columns` -1: as many as rows.
NDArray eye(IntArg rows, IntArg columns = -1, DType dtype = f32, Context context = cpu(),
            std::source_location where = std::source_location::current());

/// A number as an array of rank 0.
NDArray scalar_array(Scalar value, DType dtype, Context context = cpu(),
                     std::source_location where = std::source_location::current());

namespace detail {
/// Throws InvalidArgument, naming `op`, if elements of that layout would lie outside the address space.
/// Returns the first and the last element's distance from `data`, in elements.
std::pair<int64_t, int64_t> check_extent(const void* data, DType dtype, const Shape& shape,
                                         const Strides& strides, const char* op);
NDArray from_host(const void* data, DType dtype, const Shape& shape, Context context,
                  std::source_location where = std::source_location::current());
}  // namespace detail

/// A copy of host memory: row-major elements.
template <class T>
NDArray from_data(const T* data, const Shape& shape, Context context = cpu(),
                  std::source_location where = std::source_location::current()) {
  return detail::from_host(data, dtype_of<T>, shape, context, where);
}
/// A copy of a range of numbers (std::vector, std::array, std::span, ...), or of ranges of them, which must
/// be of one size: array(std::vector<std::vector<float>>{...}). Numbers of a type that arrays do not have
/// become the next wider one: uint16_t i32, size_t i64; InvalidArgument for those of 2^63 or more.
template <class R>
requires detail::NestedRange<R> NDArray array(const R& values, Context context = cpu(),
                                              std::source_location where = std::source_location::current());
/// The same numbers, row-major, with another shape, which must have as many elements: array(v, {2, 3}).
template <class R>
requires detail::NestedRange<R> NDArray array(const R& values, const Shape& shape, Context context = cpu(),
                                              std::source_location where = std::source_location::current());
/// array<bool>(std::vector<bool>{...}): the type of the numbers said.
template <class T>
requires detail::HostNumber<T> NDArray array(const std::vector<T>& values, Context context = cpu(),
                                             std::source_location where = std::source_location::current());
/// array({1.f, 2.f}); the element type is that of the numbers. Rows that differ in length throw
/// InvalidArgument.
template <class T>
NDArray array(std::initializer_list<T> values) {
  return array(std::span<const T>(values.begin(), values.size()));
}
template <class T>
NDArray array(std::initializer_list<T> values, const Shape& shape) {
  return array(std::span<const T>(values.begin(), values.size()), shape);
}
template <class T>
NDArray array(std::initializer_list<std::initializer_list<T>> rows);
template <class T>
NDArray array(std::initializer_list<std::initializer_list<std::initializer_list<T>>> planes);

/// Host memory as an array, without a copy. `release` is called once, from any thread, after the last use;
/// not at all if this throws. Elements of bool must be 0 or 1. Throws InvalidArgument for null, and for
/// shapes and strides that reach beyond the address space.
NDArray from_external(void* data, DType dtype, const Shape& shape, const Strides& strides,
                      std::function<void()> release);

/// As NumPy prints, with the process's options or others (print.h); waits.
std::ostream& operator<<(std::ostream& out, const NDArray& a);
std::string to_string(const NDArray& a);
std::string to_string(const NDArray& a, const PrintOptions& options);

/// Blocks until everything pushed so far has ended; throws the first error (Engine::wait_all).
void wait_all();

}  // namespace mx

#include "ndarray/ndarray_inl.h"
#include "ndarray/row_iterator.h"
