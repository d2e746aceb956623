#include "ndarray/io/mxnet_params.h"

#include <charconv>
#include <iterator>
#include <optional>
#include <unordered_set>

#include "engine/base/check.h"
#include "ndarray/io/byte_reader.h"
#include "ndarray/io/io_error.h"

namespace mx::io {
namespace {

constexpr uint64_t kListMagic = 0x112;
constexpr uint32_t kMagicV1 = 0xf993fac8;
constexpr uint32_t kMagicV2 = 0xf993fac9;
constexpr uint32_t kMagicV3 = 0xf993faca;
constexpr int32_t kMaxStoredRank = 32;  // the largest rank that MXNet itself can make

constexpr uint64_t kMinArrayBytes = 4;  // of an old one that is none

std::string hex(uint64_t number) {
  char text[17];
  return {text, std::to_chars(std::begin(text), std::end(text), number, 16).ptr};
}

/// An array of the file, or the reason why it cannot be read. A reason is reported once the array's name is
/// known; the names are behind the arrays in the file.
struct Item {
  TensorRecord record;
  std::string refusal;
};

struct ElementType {
  const char* name;
  uint64_t bytes;
  std::optional<DType> dtype;
};

ElementType element_type(int32_t flag, const std::string& where) {
  switch (flag) {
    case 0:
      return {"float32", 4, DType::f32};
    case 1:
      return {"float64", 8, DType::f64};
    case 2:
      return {"float16", 2, DType::f16};
    case 3:
      return {"uint8", 1, DType::u8};
    case 4:
      return {"int32", 4, DType::i32};
    case 5:
      return {"int8", 1, DType::i8};
    case 6:
      return {"int64", 8, DType::i64};
    case 7:
      return {"bool", 1, DType::bool_};
    case 8:
      return {"int16", 2, {}};
    case 9:
      return {"uint16", 2, {}};
    case 10:
      return {"uint32", 4, {}};
    case 11:
      return {"uint64", 8, {}};
    case 12:
      return {"bfloat16", 2, DType::bf16};
    default:
      throw FormatError(where + ": expected an element type of 0 to 12, got " + std::to_string(flag));
  }
}

class Parser {
 public:
  Parser(Bytes file, const std::string& where) : reader_(file, where), where_(where) {}

  MxnetParams parse(Bytes file) {
    const auto magic = reader_.number<uint64_t>("magic");
    MX_CHECK(magic == kListMagic, FormatError, where_,
             ": expected a file that begins with 0x112, the magic number of MXNet's lists of arrays, got 0x",
             hex(magic));
    reader_.number<uint64_t>("a reserved field");
    const auto count = reader_.number<uint64_t>("the number of arrays");
    MX_CHECK(count <= reader_.remaining() / kMinArrayBytes, FormatError, where_, ": expected at most ",
             reader_.remaining() / kMinArrayBytes, " arrays in a file of this size, got ", count);
    std::vector<Item> items;
    for (uint64_t i = 0; i < count; ++i) {
      place_ = where_ + ": array " + std::to_string(i) + " of " + std::to_string(count);
      items.push_back(array());
    }
    MxnetParams result;
    result.named = read_names(items);
    for (Item& item : items) {
      const TensorRecord& record = item.record;
      const std::string place = where_ + ": array " + in_quotes(record.name);
      MX_CHECK(item.refusal.empty(), FormatError, place, ": ", item.refusal);
      if (record.dtype == DType::bool_) check_bools(file.subspan(record.offset, record.bytes), place);
      result.tensors.push_back(std::move(item.record));
    }
    return result;
  }

 private:
  bool read_names(std::vector<Item>& items) {
    const auto count = reader_.number<uint64_t>("the number of names");
    MX_CHECK(count == 0 || count == items.size(), FormatError, where_, ": expected no names or ",
             items.size(), ", one for each array, got ", count);
    std::unordered_set<std::string> names;
    for (uint64_t i = 0; i < count; ++i) {
      const auto length = reader_.number<uint64_t>("the length of a name");
      std::string name = reader_.text(length, "name");
      MX_CHECK(is_utf8(name), FormatError, where_, ": expected names in UTF-8, got ", in_quotes(name));
      MX_CHECK(names.insert(name).second, FormatError, where_, ": expected every name once, got ",
               in_quotes(name), " twice");
      items[i].record.name = std::move(name);
    }
    MX_CHECK(reader_.remaining() == 0, FormatError, where_,
             ": expected the end of the file after the names, got ", reader_.remaining(), " bytes more");
    return count > 0;
  }

  Item array() {
    const auto magic = reader_.number<uint32_t>("array");
    if (magic == kMagicV2 || magic == kMagicV3) return modern(magic == kMagicV3);
    return legacy(magic);
  }

  /// Empty for an entry that is no array.
  std::optional<std::vector<int64_t>> sizes(int32_t rank, bool wide, bool numpy) {
    if (rank == 0 && !numpy) return {};
    if (rank == -1 && numpy) return {};
    MX_CHECK(rank >= 0 && rank <= kMaxStoredRank, FormatError, place_, ": expected a rank of 0 to ",
             kMaxStoredRank, ", got ", rank, " before offset ", reader_.position());
    std::vector<int64_t> dims;
    bool unknown = false;
    for (int32_t i = 0; i < rank; ++i) {
      dims.push_back(wide ? reader_.number<int64_t>("shape") : int64_t{reader_.number<uint32_t>("shape")});
      unknown = unknown || (numpy && dims.back() == -1);
      MX_CHECK(dims.back() >= 0 || unknown, FormatError, place_,
               ": expected sizes that are not negative, got ", dims.back());
    }
    if (unknown) return {};
    return dims;
  }

  uint64_t product(const std::vector<int64_t>& dims, uint64_t element_bytes) const {
    uint64_t bytes = element_bytes;
    bool overflow = false;
    for (int64_t dim : dims)
      overflow = overflow || __builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes);
    MX_CHECK(!overflow, FormatError, place_,
             ": expected fewer than 2^64 bytes, got sizes that multiply to more");
    return bytes;
  }

  void none(Item& item) const { item.refusal = "expected an array, got an empty handle (of no shape)"; }

  void fill(Item& item, const std::vector<int64_t>& dims, const ElementType& type) {
    const uint64_t bytes = product(dims, type.bytes);
    item.record.offset = reader_.position();
    item.record.bytes = bytes;
    reader_.take(bytes, "elements");
    if (!type.dtype.has_value()) {
      item.refusal = std::string("expected a type that mxrun has, got ") + type.name;
      return;
    }
    item.record.dtype = *type.dtype;
    if (dims.size() > static_cast<size_t>(kMaxRank)) {
      item.refusal =
          "expected at most " + std::to_string(kMaxRank) + " dimensions, got " + std::to_string(dims.size());
      return;
    }
    item.record.shape = Shape(dims);
    // Sizes beside a zero count as well: the shape itself must be one that an array can have.
    checked_bytes(item.record.shape, item.record.dtype, place_);
  }

  void device() { reader_.take(4 + 4, "device"); }

  Item legacy(uint32_t magic) {
    Item item;
    const bool wide = magic == kMagicV1;
    MX_CHECK(wide || magic <= static_cast<uint32_t>(kMaxStoredRank), FormatError, place_,
             ": expected an array, which begins with a rank of at most ", kMaxStoredRank,
             " or 0xf993fac8 to 0xf993faca, got 0x", hex(magic));
    const auto rank = wide ? reader_.number<int32_t>("rank") : static_cast<int32_t>(magic);
    const auto dims = sizes(rank, wide, false);
    if (!dims) {
      none(item);
      return item;
    }
    device();
    fill(item, *dims, element_type(reader_.number<int32_t>("element type"), place_));
    return item;
  }

  Item modern(bool numpy) {
    Item item;
    const auto storage = reader_.number<int32_t>("storage type");
    // -1: of no storage yet, which only a handle without shape has.
    MX_CHECK(storage >= -1 && storage <= 2, FormatError, place_,
             ": expected the storage type 0 (dense), 1 (row_sparse) or 2 (csr), got ", storage);
    const int index_arrays = storage < 0 ? 0 : storage;
    std::optional<std::vector<int64_t>> stored;
    if (index_arrays > 0) stored = sizes(reader_.number<int32_t>("rank"), true, numpy);
    const auto dims = sizes(reader_.number<int32_t>("rank"), true, numpy);
    if (!dims) {
      none(item);
      return item;
    }
    device();
    const ElementType type = element_type(reader_.number<int32_t>("element type"), place_);
    if (index_arrays == 0) {
      MX_CHECK(storage == 0, FormatError, place_, ": expected the storage type 0 (dense), got ", storage);
      fill(item, *dims, type);
      return item;
    }
    skip_sparse(index_arrays, stored.value_or(std::vector<int64_t>{0}), type, numpy);
    item.refusal = std::string("expected dense storage, got ") + (storage == 1 ? "row_sparse" : "csr") +
                   "; convert it with tostype('default') before saving";
    return item;
  }

  void skip_sparse(int index_arrays, const std::vector<int64_t>& stored, const ElementType& type,
                   bool numpy) {
    uint64_t index_bytes[2] = {};
    for (int i = 0; i < index_arrays; ++i) {
      const ElementType index = element_type(reader_.number<int32_t>("index type"), place_);
      const auto dims = sizes(reader_.number<int32_t>("rank"), true, numpy);
      index_bytes[i] = product(dims.value_or(std::vector<int64_t>{0}), index.bytes);
    }
    reader_.take(product(stored, type.bytes), "elements");
    for (int i = 0; i < index_arrays; ++i) reader_.take(index_bytes[i], "index array");
  }

  ByteReader reader_;
  const std::string& where_;
  std::string place_;
};

}  // namespace

MxnetParams parse_mxnet_params(Bytes file, const std::string& path) {
  const std::string where = "[mxnet_params] " + in_quotes(path);
  return Parser(file, where).parse(file);
}

std::string strip_mxnet_prefix(const std::string& name) {
  return name.rfind("arg:", 0) == 0 || name.rfind("aux:", 0) == 0 ? name.substr(4) : name;
}

}  // namespace mx::io
