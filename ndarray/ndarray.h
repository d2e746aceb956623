// NDArray: an array of numbers of one type on one device. Operations on it run asynchronously.
//
//   NDArray a = ones({2, 3}) * 2;       // returns at once
//   a[0] = 7;                           // returns at once; takes effect after the product
//   std::cout << a << '\n';             // waits for both
//
// An NDArray is a handle: a copy of it refers to the same array. `x = e` makes x refer to another array, even
// if x was made by indexing (`NDArray row = a[0]; row = e`). `a[i] = e`, `a += e` and functions whose names
// end in `_` change the array for every handle to it. clone() copies the elements. Views (slices, transposes,
// reshapes) share memory with their base. Operands may overlap: results are as if they had been copied first.
//
// Functions that read values (item, to_vector, printing, data) wait for the operations that compute them, and
// throw the error if one failed. All other functions return at once.
//
// Thread-safety: as for std::shared_ptr. A handle must not be assigned while another thread uses it. Any
// number of handles to one array may be used from any threads. Operations take effect in the order in which
// they are called.
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

/// How backward() stores the gradient of a leaf: null: not at all; write: replaces grad(); add: adds to it.
enum class GradReq : uint8_t { null, write, add };

struct BackwardOptions {
  bool retain_graph = false;  ///< keep the saved values, so that a second backward pass is possible
  /// Record the backward pass too, so that the gradients can be differentiated; implies retain_graph. The
  /// array in grad() then has a graph of its own, which lives as long as that gradient.
  bool create_graph = false;
};

/// Called with a gradient during a backward pass. The array it returns replaces the gradient; an empty handle
/// keeps it.
using GradHook = std::function<NDArray(const NDArray& gradient)>;

class NDArray {
 public:
  /// Makes an empty handle. Only assignment, copying, destruction and defined() are allowed on it.
  NDArray() = default;
  NDArray(const NDArray&) = default;
  NDArray(NDArray&&) = default;
  /// Makes this handle refer to another array. On a temporary this would have no effect, so
  /// `a.transpose() = e` does not compile; write a.transpose().copy_from(e).
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
  /// Returns true if both use the same storage, even if they have no element in common.
  bool shares_memory(const NDArray& other) const;

  // Views. They throw InvalidArgument for axes, indices and sizes that do not fit the shape. The error names
  // the line of the call; that of a[i] and a[Slice] cannot.

  /// Returns entry i of the first dimension. A negative i counts from the end; a number that an int64_t
  /// cannot hold is out of range. It is a template so that the list of one number, a[{i}], calls the overload
  /// for lists.
  template <detail::IndexNumber T>
  View operator[](T i) const;
  template <std::same_as<bool> T>
  View operator[](T i) const = delete;
  /// a[Slice{0, 5}], a[colon], a[ellipsis], a[newaxis].
  template <class T>
  requires(std::same_as<T, Slice> || std::same_as<T, Ellipsis> || std::same_as<T, NewAxis>) View operator[](
      const T& entry) const;
  /// Indexes with one entry per dimension: a[{0, colon, Slice{1, 5}}]. If an entry is an array, this is
  /// NumPy's advanced indexing: the result is a copy, but a[{rows, 0}] = e writes into this array.
  View operator[](std::initializer_list<Index> index) const;
  /// The same for a list of entries that is built at run time.
  View operator[](std::span<const Index> index) const;
  /// Advanced indexing with one array. Integers select rows. A bool array, which has this shape or the sizes
  /// of its first dimensions, selects elements.
  View operator[](const Arg& index) const;
  /// Iterate over the entries of the first dimension, as views. In `for (NDArray row : a)`, row.fill_(0)
  /// changes a, and `row = e` only makes row refer to another array. Throws InvalidArgument for an array of
  /// rank 0.
  RowIterator begin() const;
  RowIterator end() const;
  NDArray select(IntArg axis, IntArg i, std::source_location where = std::source_location::current()) const;
  NDArray slice(IntArg axis, const Slice& range,
                std::source_location where = std::source_location::current()) const;
  /// Returns a view with the dimensions in the order of `axes`; without axes, in reverse order.
  NDArray transpose(const Shape& axes = {},
                    std::source_location where = std::source_location::current()) const;
  NDArray swap_axes(IntArg a, IntArg b, std::source_location where = std::source_location::current()) const;
  NDArray move_axis(IntArg from, IntArg to,
                    std::source_location where = std::source_location::current()) const;
  NDArray expand_dims(IntArg axis, std::source_location where = std::source_location::current()) const;
  /// Removes the dimension `axis`, whose size must be 1. Without an argument, removes all of size 1.
  NDArray squeeze(IntArg axis, std::source_location where = std::source_location::current()) const;
  NDArray squeeze() const;
  NDArray broadcast_to(const Shape& shape,
                       std::source_location where = std::source_location::current()) const;
  NDArray diagonal(IntArg offset = 0, IntArg axis1 = 0, IntArg axis2 = 1,
                   std::source_location where = std::source_location::current()) const;
  /// Returns the same elements with other sizes. One size may be -1: it follows from the others. The result
  /// is a view if the strides allow it, otherwise a copy.
  NDArray reshape(const Shape& shape, std::source_location where = std::source_location::current()) const;
  NDArray flatten(std::source_location where = std::source_location::current()) const {
    return reshape({-1}, where);
  }
  /// Returns a view with any strides and offset, in elements from the start of the storage. Throws
  /// InvalidArgument if it would reach outside of the storage. If its elements may overlap, writing to it
  /// throws.
  NDArray as_strided(const Shape& shape, const Strides& strides, IntArg offset,
                     std::source_location where = std::source_location::current()) const;

  // These members call the functions of operators/ with the same names: x.mean(1) is mean(x, 1). Only the
  // function var() has another name here, variance(), because the member var() returns the engine's variable.
  // They throw InvalidState if the program does not link the operators (operators/operators.h).

  /// Returns transpose(), which is a view.
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
  /// Returns this array if it is contiguous, otherwise a contiguous copy.
  NDArray to_contiguous(std::source_location where = std::source_location::current()) const;
  /// Returns this array if it is on that device, otherwise a copy there.
  NDArray to(Context context, std::source_location where = std::source_location::current()) const;
  /// Returns this array if it has that type, otherwise a converted copy.
  NDArray to(DType dtype, std::source_location where = std::source_location::current()) const;

  // Changes in place. The source is converted to this array's type, broadcast to its shape and copied to its
  // device.

  NDArray& copy_from(const NDArray& source, std::source_location where = std::source_location::current());
  /// Sets every element. Throws InvalidArgument, naming the number and the type, if dtype() cannot hold the
  /// number (fits() in scalar.h). `a[i] = number` and full() throw in the same cases.
  NDArray& fill_(Scalar value, std::source_location where = std::source_location::current());

  // Gradients (docs/autograd.md). They throw InvalidState if automatic differentiation is not linked
  // (executor/autograd/autograd.h, mx::executor).

  /// Makes the array a leaf: operations on it are recorded from now on, and backward() sets its gradient.
  /// With GradReq::null the array gets no gradient, but operations on it are recorded. `false` ends the
  /// recording. Throws InvalidArgument if the array is not floating-point. For leaves and plain arrays only:
  /// a result of a recorded operation is recorded anyway, and `false` throws InvalidState for it.
  NDArray& requires_grad_(bool on = true, std::source_location where = std::source_location::current());
  NDArray& requires_grad_(GradReq req, std::source_location where = std::source_location::current());
  /// Returns whether operations on it are recorded: after requires_grad_(), and for recorded results.
  bool requires_grad() const { return impl().marked(); }
  /// Returns d(loss)/d(this), as backward() stored it; an empty handle if there is none.
  NDArray grad() const;
  /// Replaces the gradient of a leaf. An empty handle removes it. Throws InvalidState if this is not a leaf.
  void set_grad(const NDArray& grad, std::source_location where = std::source_location::current()) const;
  /// Makes backward() store the gradient of this array even though the array is a result and not a leaf.
  const NDArray& retain_grad(std::source_location where = std::source_location::current()) const;
  /// Calls the hook with this array's gradient in every backward pass (backward(), gradients(), grad()), on
  /// the thread of the pass. Hooks run in the order in which they were added; the handle removes one.
  HookHandle add_grad_hook(GradHook hook, std::source_location where = std::source_location::current()) const;
  /// Runs a backward pass over the recorded operations: adds d(this)/d(x) to x.grad() for every leaf x on
  /// which this array depends. `head` is d(loss)/d(this); it may be omitted if this array has one element.
  /// Returns when everything is pushed. Throws InvalidArgument for a head that does not fit. Throws
  /// InvalidState if nothing was recorded, if an earlier pass has released the saved values, or if a saved
  /// value that is needed has been changed in place since.
  void backward(const NDArray& head = {}, const BackwardOptions& options = {},
                std::source_location where = std::source_location::current()) const;
  void backward(const BackwardOptions& options,
                std::source_location where = std::source_location::current()) const {
    backward({}, options, where);
  }
  /// Returns an array over the same memory that is not recorded.
  NDArray detach() const;

  // Values: these functions wait.

  /// Returns the only element. Throws InvalidArgument if there is not exactly one, if T has a lower category
  /// than dtype() (an array of floats has no item<int>()), or if T cannot hold the value (300 as uint8_t,
  /// 1e300 as float).
  template <class T>
  T item(std::source_location where = std::source_location::current()) const;
  /// Returns all elements in row-major order, converted to T.
  template <class T>
  std::vector<T> to_vector() const;
  /// Returns true if the only element is not zero. For conditions. Throws InvalidArgument if there is not
  /// exactly one element.
  explicit operator bool() const { return truth(); }

  /// Blocks until the operations that set the array have ended. Throws the error if one failed.
  void wait() const;
  /// The same with a time limit. Returns false if the limit passes first.
  bool wait(IntArg timeout_ms) const;

  /// Returns the address of the first element in host memory. It is valid as long as the array lives. Throws
  /// InvalidArgument if the array is on a device, or if T is not its element type.
  ///
  /// data() waits for earlier operations that set the array, mutable_data() also for those that read it. So
  /// all of them take effect before the pointer is used. Later operations may run while the pointer is in
  /// use: the caller must wait for them, or call the function again.
  template <class T>
  const T* data() const;
  template <class T>
  T* mutable_data();

  /// Returns the engine's variable of the memory, for operations that the program pushes itself. From then on
  /// every operation on the memory is pushed, even a small one, so that they all keep their order.
  Var var() const;

  // For operators and the layers above.
  explicit NDArray(detail::Ref<detail::ArrayImpl> impl) : impl_(std::move(impl)) {}
  /// Returns the array for use by an operation; a deferred read is done first. Throws InvalidArgument for an
  /// empty handle.
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
  /// Copies all elements to `target`, converted to `dtype`, in row-major order.
  void read(void* target, DType dtype, const char* op) const;
  /// Copies the only element to `target`, converted to `dtype`.
  void read_item(void* target, DType dtype, std::source_location where) const;
  void* host_data(DType dtype, bool write) const;

  detail::Ref<detail::ArrayImpl> impl_;
};

/// An array argument with the source location of the call, which errors name.
struct Arg {
  const NDArray& array;
  std::source_location where;

  Arg(const NDArray& a, std::source_location w = std::source_location::current()) : array(a), where(w) {}
};

/// A number as an argument, with the source location of the call.
struct NumberArg {
  Scalar number;
  std::source_location where;

  template <class T>
  requires std::is_convertible_v<T, Scalar> NumberArg(
      T n, std::source_location w = std::source_location::current())
      : number(n), where(w) {}
};

/// The result of indexing. It is an array; as a temporary it is also the target of an assignment.
///
///   a[i] = e;   a[i] += e;         // write into a
///   auto row = a[0];               // a handle, like NDArray row = a[0]
///   row = a[2];                    // makes row refer to another array; changes no elements
///   row.fill_(3);  row.copy_from(e);  row += 1;   // change the elements of row, which belong to a
///
/// If the index contains arrays, the result is a copy, so the last line does not change `a`. `NDArray b =
/// a[indices]` reads the elements at once. `auto b = a[indices]` makes a View, which reads them at its first
/// use, because `a[indices] = e` needs no read. If `a` or the indices have been changed by then, the use
/// throws InvalidState.
class View : public NDArray {
 public:
  explicit View(NDArray view) : NDArray(std::move(view)) {}
  /// A copy outlives the expression, so a deferred read of an index with arrays is done now.
  View(const View& other);
  View(View&&) = default;
  ~View() {
    if (target_ != nullptr && target_.use_count() == 1) target_->settle(ref() ? 1 : 0);
  }

  /// Writes into the base.
  const View& operator=(const Arg& source) &&;
  const View& operator=(const NumberArg& value) &&;

  /// Makes this handle refer to another array.
  View& operator=(const NDArray& array) &;
  View& operator=(const View& other) &;
  View& operator=(View&& other) &;

  /// Returns true if the index contains arrays. The elements are then a copy: changing them does not change
  /// the base.
  bool advanced() const { return target_ != nullptr; }

  /// Performs assignments to an index with arrays. Internal.
  struct Target {
    virtual ~Target() = default;
    virtual void assign(const NDArray& source, std::source_location where) = 0;
    virtual void assign(const NumberArg& value) = 0;
    /// Called when the last View is destroyed, which owns `handles` handles to the result. If there are other
    /// handles, the deferred read is done now.
    virtual void settle(uint32_t handles) noexcept = 0;
  };
  View(NDArray view, std::shared_ptr<Target> target) : NDArray(std::move(view)), target_(std::move(target)) {}

 private:
  std::shared_ptr<Target> target_;
};

// Creation. Throws InvalidArgument for sizes that are negative or too large. Memory is allocated at its first
// use.

/// Returns an array whose elements are not initialised.
NDArray empty(const Shape& shape, DType dtype = f32, Context context = cpu(),
              std::source_location where = std::source_location::current());
NDArray zeros(const Shape& shape, DType dtype = f32, Context context = cpu(),
              std::source_location where = std::source_location::current());
NDArray ones(const Shape& shape, DType dtype = f32, Context context = cpu(),
             std::source_location where = std::source_location::current());
NDArray full(const Shape& shape, Scalar value, DType dtype = f32, Context context = cpu(),
             std::source_location where = std::source_location::current());
NDArray empty_like(const NDArray& a, std::source_location where = std::source_location::current());
NDArray zeros_like(const NDArray& a, std::source_location where = std::source_location::current());
NDArray ones_like(const NDArray& a, std::source_location where = std::source_location::current());
NDArray full_like(const NDArray& a, Scalar value,
                  std::source_location where = std::source_location::current());
/// Returns 0, 1, ..., stop - 1, of type i64, or f32 if a given number is floating-point.
NDArray arange(Scalar stop, std::source_location where = std::source_location::current());
/// The same with a given type: arange(10, f32), arange(2, 10, f32).
NDArray arange(Scalar stop, DType dtype, Context context = cpu(),
               std::source_location where = std::source_location::current());
NDArray arange(Scalar start, Scalar stop, DType dtype, Context context = cpu(),
               std::source_location where = std::source_location::current());
/// Returns start, start + step, ..., up to but not including stop.
NDArray arange(Scalar start, Scalar stop, Scalar step = 1,
               std::source_location where = std::source_location::current());
NDArray arange(Scalar start, Scalar stop, Scalar step, DType dtype, Context context = cpu(),
               std::source_location where = std::source_location::current());
/// Returns `count` evenly spaced numbers from start to stop, both included.
NDArray linspace(double start, double stop, IntArg count, DType dtype = f32, Context context = cpu(),
                 std::source_location where = std::source_location::current());
/// Returns a matrix with ones on the diagonal and zeros elsewhere. If `columns` is -1, it is square.
NDArray eye(IntArg rows, IntArg columns = -1, DType dtype = f32, Context context = cpu(),
            std::source_location where = std::source_location::current());

/// Returns a number as an array of rank 0.
NDArray scalar_array(Scalar value, DType dtype, Context context = cpu(),
                     std::source_location where = std::source_location::current());

namespace detail {
/// Returns the distances of the lowest and the highest element in memory from `data`, in elements. Throws
/// InvalidArgument, naming `op`, if elements of that layout would lie outside the address space.
std::pair<int64_t, int64_t> check_extent(const void* data, DType dtype, const Shape& shape,
                                         const Strides& strides, const char* op);
/// Throws InvalidArgument, with the line of the call, if `shape` does not have that many elements.
void check_array_shape(const Shape& shape, int64_t elements, std::source_location where);
NDArray from_host(const void* data, DType dtype, const Shape& shape, Context context,
                  std::source_location where = std::source_location::current());
}  // namespace detail

/// Returns a copy of elements in host memory, which are in row-major order.
template <class T>
NDArray from_data(const T* data, const Shape& shape, Context context = cpu(),
                  std::source_location where = std::source_location::current()) {
  return detail::from_host(data, dtype_of<T>, shape, context, where);
}
/// Returns a copy of a range of numbers (std::vector, std::array, std::span, ...), or of a range of ranges of
/// the same size: array(std::vector<std::vector<float>>{...}). Numbers of a type that arrays do not have
/// become the next wider type: uint16_t becomes i32, size_t becomes i64. Throws InvalidArgument for a number
/// of 2^63 or more.
template <class R>
requires detail::NestedRange<R> NDArray array(const R& values, Context context = cpu(),
                                              std::source_location where = std::source_location::current());
/// The same, in row-major order, with a shape that must have as many elements: array(v, {2, 3}).
template <class R>
requires detail::NestedRange<R> NDArray array(const R& values, const Shape& shape, Context context = cpu(),
                                              std::source_location where = std::source_location::current());
/// The same with the type of the numbers given: array<bool>(std::vector<bool>{...}).
template <class T>
requires detail::HostNumber<T> NDArray array(const std::vector<T>& values, Context context = cpu(),
                                             std::source_location where = std::source_location::current());
/// The same for numbers in braces: array({1.f, 2.f}). The element type is that of the numbers. Throws
/// InvalidArgument for rows that differ in length.
template <class T>
NDArray array(std::initializer_list<T> values, std::source_location where = std::source_location::current()) {
  return array(std::span<const T>(values.begin(), values.size()), cpu(), where);
}
template <class T>
NDArray array(std::initializer_list<T> values, const Shape& shape,
              std::source_location where = std::source_location::current()) {
  return array(std::span<const T>(values.begin(), values.size()), shape, cpu(), where);
}
template <class T>
NDArray array(std::initializer_list<std::initializer_list<T>> rows,
              std::source_location where = std::source_location::current());
template <class T>
NDArray array(std::initializer_list<std::initializer_list<std::initializer_list<T>>> planes,
              std::source_location where = std::source_location::current());

/// Returns an array over host memory, without a copy. `release` is called once, from any thread, after the
/// last use; it is not called if this throws. Elements of bool must be 0 or 1. Throws InvalidArgument for
/// null, and for shapes and strides that reach beyond the address space.
NDArray from_external(void* data, DType dtype, const Shape& shape, const Strides& strides,
                      std::function<void()> release);

/// Prints as NumPy does, with the options of the process or with the given ones (print.h). Waits.
std::ostream& operator<<(std::ostream& out, const NDArray& a);
std::string to_string(const NDArray& a);
std::string to_string(const NDArray& a, const PrintOptions& options);

/// Blocks until everything pushed so far has ended; throws the first error (Engine::wait_all).
void wait_all();

}  // namespace mx

#include "ndarray/ndarray_inl.h"
#include "ndarray/row_iterator.h"
