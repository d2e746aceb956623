#include "nn/training/checkpoint.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "ndarray/io/io_error.h"
#include "operators/random.h"

namespace mx::training {
namespace {

constexpr const char* kFormat = "mxrun checkpoint 1";

/// Returns the only array of a part. Throws InvalidArgument for another rank or type.
NDArray single(const NamedArrays& state, const std::string& part, DType dtype, int rank) {
  const NDArray* const array = state.find("value");
  MX_CHECK(state.size() == 1 && array != nullptr && array->dtype() == dtype && array->rank() == rank,
           InvalidArgument, "[checkpoint] expected one array of type ", dtype, " and rank ", rank, " in '",
           part, "', got ", state.size(), " arrays, or another type or rank");
  return *array;
}

data::LoaderState loader_state(const std::vector<int64_t>& v) {
  return {.epoch = v[0],
          .position = v[1],
          .seed = v[2],
          .samples = v[3],
          .batch_size = v[4],
          .shard = v[5],
          .shards = v[6],
          .shuffle = v[7] != 0,
          .drop_last = v[8] != 0};
}

}  // namespace

void Checkpoint::check_name(const std::string& name) const {
  const bool taken =
      texts_.count(name) > 0 ||
      std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) { return part.name == name; });
  MX_CHECK(!name.empty() && name.find('/') == std::string::npos && name != "format" && !taken,
           InvalidArgument, "[checkpoint] expected a new name without '/', got '", name, "'",
           taken ? ", which is taken" : "");
}

Checkpoint& Checkpoint::add_part(const std::string& name, std::function<NamedArrays()> state,
                                 std::function<void(const NamedArrays&)> load) {
  check_name(name);
  parts_.push_back({name, std::move(state), std::move(load)});
  return *this;
}

Checkpoint& Checkpoint::add(const std::string& name, data::Loader& loader) {
  return add_part(
      name,
      [&loader] {
        const data::LoaderState s = loader.state();
        return NamedArrays{{"value", array(std::vector<int64_t>{s.epoch, s.position, s.seed, s.samples,
                                                                s.batch_size, s.shard, s.shards,
                                                                s.shuffle ? 1 : 0, s.drop_last ? 1 : 0})}};
      },
      [&loader, name](const NamedArrays& state) {
        const std::vector<int64_t> values = single(state, name, i64, 1).to_vector<int64_t>();
        MX_CHECK(values.size() == 9, InvalidArgument, "[checkpoint] expected 9 numbers in '", name, "', got ",
                 values.size());
        loader.restore(loader_state(values));
      });
}

Checkpoint& Checkpoint::add(const std::string& name, int64_t& number) {
  return add_part(
      name,
      [&number] {
        return NamedArrays{{"value", scalar_array(number, i64)}};
      },
      [&number, name](const NamedArrays& s) { number = single(s, name, i64, 0).item<int64_t>(); });
}

Checkpoint& Checkpoint::add(const std::string& name, double& number) {
  return add_part(
      name,
      [&number] {
        return NamedArrays{{"value", scalar_array(number, f64)}};
      },
      [&number, name](const NamedArrays& s) { number = single(s, name, f64, 0).item<double>(); });
}

Checkpoint& Checkpoint::add(const std::string& name, std::vector<double>& numbers) {
  return add_part(
      name,
      [&numbers] {
        return NamedArrays{{"value", numbers.empty() ? zeros({0}, f64) : array(numbers)}};
      },
      [&numbers, name](const NamedArrays& s) { numbers = single(s, name, f64, 1).to_vector<double>(); });
}

Checkpoint& Checkpoint::add(const std::string& name, const NDArray& array) {
  return add_part(
      name,
      [array] {
        return NamedArrays{{"value", array.detach()}};
      },
      [array, name](const NamedArrays& state) {
        const NDArray loaded = single(state, name, array.dtype(), array.rank());
        MX_CHECK(loaded.shape() == array.shape(), InvalidArgument, "[checkpoint] expected '", name, "' as ",
                 array.shape(), ", got ", loaded.shape());
        array.detach().copy_from(loaded);
      });
}

Checkpoint& Checkpoint::add_random(Context context) {
  return add("random " + mx::detail::concat(context), default_generator(context).state());
}

Checkpoint& Checkpoint::set(const std::string& name, const std::string& text) {
  check_name(name);
  texts_[name] = text;
  return *this;
}

NamedArrays Checkpoint::state() const {
  const NoGrad pause;
  NamedArrays all;
  for (const Part& part : parts_) {
    for (const auto& [name, array] : part.state()) all.emplace_back(part.name + '/' + name, array);
  }
  return all;
}

void Checkpoint::save(const std::string& path, const NamedArrays& state, io::FileOps& ops) const {
  FileMetadata texts = texts_;
  texts["format"] = kFormat;
  save_safetensors(path, state, texts, ops);
}

void Checkpoint::load(const std::string& path, std::source_location where) try {
  const NoGrad pause;
  FileMetadata texts;
  // Read, not mapped: saving to the same path must not change arrays that are still in use.
  const NamedArrays all = load_safetensors(path, &texts, LoadMode::read);
  std::string problems;
  const auto add = [&](const auto&... parts) {
    problems += mx::detail::concat(problems.empty() ? "" : "; ", parts...);
  };
  if (texts["format"] != kFormat) add("expected a checkpoint of this library");
  for (const auto& [name, text] : texts_)
    if (const auto found = texts.find(name); found == texts.end() || found->second != text)
      add("expected ", name, " '", text, "', got ",
          found == texts.end() ? std::string("none") : "'" + found->second + "'");
  std::map<std::string, NamedArrays> by_part;
  for (const auto& [name, array] : all) {
    const size_t slash = name.find('/');
    by_part[name.substr(0, slash)].emplace_back(slash == std::string::npos ? "" : name.substr(slash + 1),
                                                array);
  }
  std::set<std::string> known;
  for (const Part& part : parts_) {
    known.insert(part.name);
    if (by_part.count(part.name) == 0 && !part.state().empty())
      add("expected a part '", part.name, "', got none");
  }
  for (const auto& entry : by_part)
    if (known.count(entry.first) == 0) add("expected no part '", entry.first, "', got one");
  const std::string place = mx::detail::place_of(where);
  MX_CHECK(problems.empty(), InvalidArgument, "[checkpoint] ", problems, " (in ", path,
           place.empty() ? "" : "; called at ", place, ')');
  for (const Part& part : parts_) {
    try {
      part.load(by_part[part.name]);
    } catch (const Error&) {
      std::rethrow_exception(rewrite_current_exception([&](const std::string& text) {
        return mx::detail::concat(text, " (part '", part.name, "' of ", path, ')');
      }));
    }
  }
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

bool Checkpoint::load_if_exists(const std::string& path, std::source_location where) try {
  std::error_code code;
  const bool there = std::filesystem::exists(path, code);
  if (code) throw FileError("stat", path, code.value(), "");
  if (!there) return false;
  load(path, where);
  return true;
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

}  // namespace mx::training
