// Saving and loading arrays: a file contains the values at the time of the call, in the order of operations,
// and a file name always refers to a complete file.
#include "ndarray/save.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "ndarray/io/mapped_file.h"
#include "ndarray/io/npy.h"
#include "ndarray/io/safetensors.h"
#include "ndarray/io/zip.h"
#include "ndarray/launch.h"
#include "tests/ndarray/io_faults.h"
#include "tests/ndarray/io_samples.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"
#include "tests/support/failures.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::failed_array;
using test::Faults;
using test::Hold;
using test::settle;
using test::slurp;
using test::spill;
using test::TempFolder;

/// Returns the bytes of the elements, row-major.
std::string bytes_of_array(const NDArray& array) {
  const NDArray whole = array.to(cpu()).clone();
  return visit(whole.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* data = whole.data<T>();
    if (whole.bytes() == 0) return std::string();
    return std::string(reinterpret_cast<const char*>(data), whole.bytes());
  });
}

void expect_same(const NDArray& expected, const NDArray& got, const std::string& name) {
  EXPECT_EQ(expected.dtype(), got.dtype()) << name;
  EXPECT_EQ(expected.shape(), got.shape()) << name;
  EXPECT_TRUE(bytes_of_array(expected) == bytes_of_array(got)) << name;
}

/// Arrays of every type and many shapes, including zero-size and 0-d ones; and views.
NamedArrays samples() {
  static const test::Samples tensors;
  NamedArrays arrays;
  for (const io::TensorData& t : tensors.tensors())
    arrays.emplace_back(t.name, detail::from_host(t.data.data(), t.dtype, t.shape, cpu()));
  const NDArray x = arange(0, 60, 1, f32).reshape({3, 4, 5});
  arrays.emplace_back("view/transposed", x.transpose());
  arrays.emplace_back("view/select", x.select(1, 2));
  arrays.emplace_back("view/negative", x.slice(2, {{}, {}, -2}));
  arrays.emplace_back("view/broadcast", x.select(0, 1).broadcast_to({2, 4, 5}));
  arrays.emplace_back("view/element", x.select(0, 0).select(0, 0).select(0, 3));
  arrays.emplace_back("view/device", x.to(virt(0)).transpose());
  arrays.emplace_back("view/empty", x.slice(0, {1, 1}));
  return arrays;
}

struct Format {
  std::string name;
  std::function<void(const std::string&, const NamedArrays&, io::FileOps&)> save;
  std::function<NamedArrays(const std::string&)> load;
};

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {
      {"safetensors",
       [](const std::string& path, const NamedArrays& arrays, io::FileOps& ops) {
         save_safetensors(path, arrays, {{"made by", "a test"}}, ops);
       },
       [](const std::string& path) { return load_safetensors(path); }},
      {"npz",
       [](const std::string& path, const NamedArrays& arrays, io::FileOps& ops) {
         save_npz(path, arrays, false, ops);
       },
       load_npz},
      {"npz, compressed",
       [](const std::string& path, const NamedArrays& arrays, io::FileOps& ops) {
         save_npz(path, arrays, true, ops);
       },
       load_npz},
      {"npy",
       [](const std::string& path, const NamedArrays& arrays, io::FileOps& ops) {
         save_npy(path, arrays.at(0).second, ops);
       },
       [](const std::string& path) {
         return NamedArrays{{"x", load_npy(path)}};
       }},
  };
  return all;
}

TEST(Save, EveryTypeShapeAndViewComesBack) {
  const TempFolder folder;
  const NamedArrays arrays = samples();
  for (const Format& format : formats()) {
    if (format.name == "npy") continue;
    const std::string path = folder / "all";
    format.save(path, arrays, io::FileOps::posix());
    const NamedArrays back = format.load(path);
    ASSERT_EQ(arrays.size(), back.size()) << format.name;
    for (const auto& [name, array] : arrays) expect_same(array, back.at(name), format.name + " " + name);
    EXPECT_EQ(1u, folder.count());
  }
  for (const auto& [name, array] : arrays) {
    save_npy(folder / "one", array);
    expect_same(array, load_npy(folder / "one"), "npy " + name);
  }
}

TEST(Save, OrderAndMetadataComeBack) {
  const TempFolder folder;
  save_npz(folder / "a", {{"z", ones({2})}, {"a", ones({3})}});
  const NamedArrays back = load_npz(folder / "a");
  EXPECT_EQ("z", back[0].first);
  EXPECT_EQ("a", back[1].first);
  save_safetensors(folder / "b", std::map<std::string, NDArray>{{"w", ones({2})}}, {{"format", "pt"}});
  FileMetadata metadata;
  EXPECT_EQ((Shape{2}), load_safetensors(folder / "b", &metadata).at("w").shape());
  EXPECT_EQ((FileMetadata{{"format", "pt"}}), metadata);
  save_safetensors(folder / "c", {});
  EXPECT_TRUE(load_safetensors(folder / "c", &metadata).empty());
  EXPECT_TRUE(metadata.empty());
}

TEST(Save, NamesThatAreNotThereAreListed) {
  const NamedArrays arrays{{"w", ones({1})}, {"b", ones({1})}};
  const std::string message = error_of<InvalidArgument>([&] { arrays.at("bias"); });
  EXPECT_TRUE(contains(message, "w") && contains(message, "b") && contains(message, "bias")) << message;
  EXPECT_EQ(nullptr, arrays.find("bias"));
}

// The file gets the values at the time of the call: later changes wait until they are written.
TEST(Save, TakesItsPlaceInTheOrderOfOperations) {
  const TempFolder folder;
  NDArray x = zeros({1000, 10});
  Hold hold;
  current_engine().push_async(hold.operation(), {.updates = {x.var()}, .name = "hold"});
  NDArray y = x.clone();
  y.fill_(3);
  x.copy_from(y);
  hold.release();
  save_npy(folder / "x", x);
  x.fill_(9);
  EXPECT_EQ(std::vector<float>(10000, 3.f), load_npy(folder / "x").to_vector<float>());
}

TEST(Save, TheErrorOfAnArrayComesOutBeforeAnythingIsWritten) {
  const TempFolder folder;
  for (const Format& format : formats()) {
    Faults system;
    spill(folder / "a", "old content");
    const std::string message = error_of<Error>([&] {
      format.save(folder / "a", {{"bad", failed_array()}, {"good", ones({2})}}, system);
    });
    EXPECT_TRUE(contains(message, "no such luck")) << message;
    EXPECT_TRUE(system.calls.empty()) << format.name;
    EXPECT_EQ("old content", slurp(folder / "a"));
  }
}

TEST(Save, EveryFaultOfTheSystemLeavesTheOldFile) {
  const TempFolder folder;
  const std::string path = folder / "a";
  const NamedArrays arrays{{"x", arange(0, 50000, 1, f32)}, {"y", ones({3, 4}, f64)}};
  for (const Format& format : formats()) {
    spill(path, "old content");  // replacing an existing file takes one more call
    Faults none;
    format.save(path, arrays, none);
    const std::string whole = slurp(path);
    ASSERT_GT(none.calls.size(), 6u);
    for (size_t i = 0; i + 1 < none.calls.size(); ++i) {
      spill(path, "old content");
      Faults faults(static_cast<int>(i), ENOSPC);
      const std::string message = error_of<FileError>([&] { format.save(path, arrays, faults); });
      EXPECT_TRUE(contains(message, path)) << message;
      // Only the flush of the folder can fail after the rename.
      const bool renamed = i + 3 >= none.calls.size();
      EXPECT_TRUE((renamed ? whole : "old content") == slurp(path))
          << format.name << ' ' << i << ' ' << testing::PrintToString(none.calls);
      EXPECT_EQ(1u, folder.count());
    }
  }
}

TEST(Save, ErrorsKeepTheirTypes) {
  const TempFolder folder;
  error_of<FileError>([&] { save_npy(folder / "no/such/folder", ones({2})); });
  error_of<FileError>([&] { load_npz(folder / "missing"); });
  error_of<FormatError>([&] {
    spill(folder / "broken", "not an array");
    load_npy(folder / "broken");
  });
  error_of<InvalidArgument>([&] { save_safetensors(folder / "a", {{"x", ones({2})}, {"x", ones({2})}}); });
  error_of<InvalidArgument>([&] { save_npz(folder / "a", {{"x", NDArray()}}); });
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

TEST(Save, NamesThatNoFileCanHoldAreRefusedBeforeAnythingIsWaitedFor) {
  const TempFolder folder;
  const NDArray x = zeros({2});
  Hold hold;
  current_engine().push_async(hold.operation(), {.updates = {x.var()}, .name = "hold"});
  // The names must be refused before any wait: x is held, so a wait would never end.
  for (const char* name : {"\xff", "__metadata__"})
    error_of<InvalidArgument>([&] { save_safetensors(folder / "a", {{name, x}}); });
  error_of<InvalidArgument>([&] { save_safetensors(folder / "a", {{"x", x}, {"x", x}}); });
  error_of<InvalidArgument>([&] { save_safetensors(folder / "a", {{"x", x}}, {{"\xff", ""}}); });
  error_of<InvalidArgument>([&] { save_npz(folder / "a", {{"\xff", x}}); });
  error_of<InvalidArgument>([&] { save_npz(folder / "a", {{"x", x}, {"x", x}}); });
  const std::string zero("a\0b", 3);
  const std::string text = error_of<InvalidArgument>([&] { save_npz(folder / "a", {{zero, x}}); });
  EXPECT_TRUE(contains(text, "expected a name without zero bytes, got 'a\\x00b.npy'")) << text;
  error_of<InvalidArgument>([&] { save_npz(folder / "a", {{std::string(70'000, 'x'), x}}); });
  error_of<InvalidArgument>([&] { save_npy(folder / "a" + std::string(1, '\0'), x); });
  hold.release();
  EXPECT_EQ(0u, folder.count());
}

// JSON can hold such a name, so it comes back whole, and beside the name that it begins with.
TEST(Save, SafetensorsKeepNamesWithAByteOfZero) {
  const TempFolder folder;
  const std::string zero("a\0b", 3);
  save_safetensors(folder / "a", {{zero, full({1}, 1)}, {"a", full({1}, 2)}}, {{zero, zero}});
  FileMetadata metadata;
  const NamedArrays back = load_safetensors(folder / "a", &metadata);
  EXPECT_EQ(1, back.at(zero).item<float>());
  EXPECT_EQ(2, back.at("a").item<float>());
  EXPECT_EQ(zero, metadata.at(zero));
}

TEST(Load, WhatHasBeenReadDoesNotNeedTheFile) {
  const TempFolder folder;
  const NDArray x = arange(100'000).to(f32);
  const std::string path = folder / "a";
  const auto expect_read = [&](const auto& load) {
    const NDArray loaded = load();
    std::filesystem::resize_file(path, 0);
    expect_same(x, loaded, "after the file was truncated");
  };
  save_safetensors(path, {{"x", x}});
  expect_read([&] { return load_safetensors(path, nullptr, LoadMode::read).at("x"); });
  save_npy(path, x);
  expect_read([&] { return load_npy(path, LoadMode::read); });
  save_npz(path, {{"x", x}});
  expect_read([&] { return load_npz(path).at("x"); });
}

TEST(Load, PathsWithAByteOfZeroAreRefused) {
  const TempFolder folder;
  const std::string path = folder / "a";
  save_npy(path, zeros({2}));
  const std::string text = error_of<InvalidArgument>([&] { load_npy(path + std::string("\0.npy", 5)); });
  EXPECT_TRUE(contains(text, "without bytes of value 0")) << text;
}

TEST(Load, MapsPrivately) {
  const TempFolder folder;
  const std::string path = folder / "a";
  save_safetensors(path, {{"x", arange(0, 1000, 1, f32)}});
  const std::string before = slurp(path);
  NDArray x = load_safetensors(path).at("x");
  x.fill_(7);
  x.wait();
  EXPECT_TRUE(before == slurp(path));
  // Saving replaces the file instead of changing it, so an array that is mapped from it keeps its values.
  NDArray y = load_safetensors(path).at("x");
  save_safetensors(path, {{"x", zeros({1000})}});
  EXPECT_EQ(999.f, y.to_vector<float>()[999]);
  std::filesystem::remove(path);
  EXPECT_EQ(998.f, y.to_vector<float>()[998]);
}

/// Returns how often the process has mapped a file of that name.
size_t mappings(const std::string& path) {
  const std::string maps = slurp("/proc/self/maps");
  size_t count = 0;
  for (size_t at = maps.find(path); at != std::string::npos; at = maps.find(path, at + 1)) ++count;
  return count;
}

TEST(Load, TheMappingGoesWithTheLastUse) {
  const TempFolder folder;
  const std::string path = folder / "a";
  save_safetensors(path, {{"x", ones({100})}, {"y", ones({100})}});
  NamedArrays arrays = load_safetensors(path);
  if (mappings(path) == 0) GTEST_SKIP() << "this file system does not map";
  NDArray part = arrays.at("y").slice(0, {3, 5});
  Hold hold;
  current_engine().push_async(hold.operation(), {.updates = {part.var()}, .name = "hold"});
  const NDArray copy = part.clone();
  arrays.clear();
  part = NDArray();
  EXPECT_GT(mappings(path), 0u) << "the copy has yet to read it";
  hold.release();
  EXPECT_EQ(std::vector<float>(2, 1.f), copy.to_vector<float>());
  settle();
  EXPECT_EQ(0u, mappings(path));
}

TEST(Load, WhatIsNotAlignedIsCopied) {
  const TempFolder folder;
  // A header whose length puts the elements at byte 65, which the format allows.
  const std::string text = R"({"x":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}     )";
  std::string file(8, '\0');
  file[0] = static_cast<char>(text.size());
  file += text;
  ASSERT_NE(0u, file.size() % 8) << file.size();
  const double values[] = {1.5, -2.5};
  file.append(reinterpret_cast<const char*>(values), 16);
  spill(folder / "a", file);
  const NDArray x = load_safetensors(folder / "a").at("x");
  EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(x.data<double>()) % 8);
  EXPECT_EQ((std::vector<double>{1.5, -2.5}), x.to_vector<double>());
}

/// Returns a list as Apache MXNet writes it, with one f32 array of shape (2,) per name.
std::string params_file(const std::vector<std::string>& names) {
  std::string file;
  const auto number = [&](uint64_t value, size_t bytes) {
    file.append(reinterpret_cast<const char*>(&value), bytes);
  };
  number(0x112, 8);
  number(0, 8);
  number(names.size(), 8);
  for (size_t i = 0; i < names.size(); ++i) {
    number(0xF993FAC9, 4);  // V2
    number(0, 4);           // dense
    number(1, 4);
    number(2, 8);
    number(1, 4);  // cpu
    number(0, 4);
    number(0, 4);  // f32
    const float values[] = {static_cast<float>(i), 0.5f};
    file.append(reinterpret_cast<const char*>(values), 8);
  }
  number(names.size(), 8);
  for (const std::string& name : names) {
    number(name.size(), 8);
    file += name;
  }
  return file;
}

TEST(Load, ReadsWhatMxnetSaved) {
  const TempFolder folder;
  spill(folder / "p", params_file({"arg:weight", "aux:mean"}));
  const NamedArrays arrays = load_mxnet_params(folder / "p");
  EXPECT_EQ((std::vector<float>{0, 0.5f}), arrays.at("weight").to_vector<float>());
  EXPECT_EQ((std::vector<float>{1, 0.5f}), arrays.at("mean").to_vector<float>());
  EXPECT_NE(nullptr, load_mxnet_params(folder / "p", true).find("arg:weight"));
  spill(folder / "q", params_file({"arg:x", "aux:x"}));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { load_mxnet_params(folder / "q"); }), "full_names"));
  EXPECT_EQ(2u, load_mxnet_params(folder / "q", true).size());
}

TEST(Save, NumpyAndSafetensorsReadAndWriteTheSame) {
  const std::string python = test::python_with("numpy, safetensors.numpy");
  if (python.empty()) GTEST_SKIP() << "needs a Python with numpy and safetensors (set MX_TEST_PYTHON)";
  const TempFolder folder;
  const NDArray x = arange(0, 12, 1, f64).reshape({3, 4});
  save_npy(folder / "x.npy", x.transpose());
  save_npz(folder / "x.npz", {{"a", x}, {"b", arange(3)}}, true);
  save_safetensors(folder / "x.st", {{"a", x.select(1, 1)}, {"flag", ones({2}, bool_)}}, {{"k", "v"}});
  ASSERT_TRUE(test::run_python(python, folder, R"(
import numpy as np, safetensors.numpy as st
x = np.arange(12.0).reshape(3, 4)
assert (np.load('x.npy') == x.T).all()
z = np.load('x.npz')
assert (z['a'] == x).all() and (z['b'] == [0, 1, 2]).all() and z['b'].dtype == np.int64
s = st.load_file('x.st')
assert (s['a'] == x[:, 1]).all() and s['flag'].dtype == np.bool_
np.save('y.npy', np.asfortranarray(x.astype(np.float32)))
np.save('big.npy', x.astype('>i4'))
np.savez('y.npz', w=x[::2], s=np.float16(1.5))
st.save_file({'w': x[:2].copy(), 'n': np.array(7)}, 'y.st', metadata={'from': 'python'})
)"));
  const auto values = [](const NDArray& a) { return a.to_vector<double>(); };
  EXPECT_EQ(values(x), values(load_npy(folder / "y.npy")));
  EXPECT_EQ(values(x), values(load_npy(folder / "big.npy")));
  const NamedArrays npz = load_npz(folder / "y.npz");
  EXPECT_EQ(values(x.slice(0, {{}, {}, 2})), values(npz.at("w")));
  EXPECT_EQ(1.5f, npz.at("s").item<float>());
  FileMetadata metadata;
  const NamedArrays st = load_safetensors(folder / "y.st", &metadata);
  EXPECT_EQ(values(x.slice(0, {0, 2})), values(st.at("w")));
  EXPECT_EQ(7, st.at("n").item<int64_t>());
  EXPECT_EQ((FileMetadata{{"from", "python"}}), metadata);
}

TEST(Save, NamedArraysAreReadByNameAndByPlace) {
  const NamedArrays arrays = {{"a", arange(2)}, {"b", arange(3)}};
  EXPECT_EQ(3, arrays["b"].numel());
  EXPECT_EQ("a", arrays[0].first);
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { arrays["c"]; }), "got 'c'"));
}

TEST(Save, NamedArraysAreRemovedByName) {
  NamedArrays arrays = {{"a", arange(2)}, {"b", arange(3)}, {"a", arange(4)}};
  EXPECT_TRUE(arrays.erase("a"));
  EXPECT_FALSE(arrays.erase("a"));
  ASSERT_EQ(1u, arrays.size());
  EXPECT_EQ("b", arrays[0].first);
  arrays.erase(arrays.begin());
  EXPECT_TRUE(arrays.empty());
}

TEST(Save, ArchivesWithIntegersThatArraysDoNotHaveAreRead) {
  // np.savez("wide.npz", a=np.array([65535, 1], "<u2")) and the like, member by member.
  const TempFolder folder;
  for (const auto& [descr, data, want, dtype] :
       {std::tuple<const char*, std::string, std::vector<int64_t>, DType>{
            "<u2", std::string("\xff\xff\1\0", 4), {65535, 1}, i32},
        {"<i2", std::string("\xff\xff\1\0", 4), {-1, 1}, i32},
        {">u4", std::string("\xff\xff\xff\xff\0\0\0\1", 8), {4294967295, 1}, i64}}) {
    std::string header = std::string("{'descr': '") + descr + "', 'fortran_order': False, 'shape': (2,), }";
    header.resize(117, ' ');
    header += '\n';
    const std::string member = std::string("\x93NUMPY\1\0\x76\0", 10) + header + data;
    spill(folder / "wide.npy", member);
    const NDArray a = load_npy(folder / "wide.npy");
    EXPECT_EQ(dtype, a.dtype());
    EXPECT_EQ(want, a.to_vector<int64_t>());
    io::BufferSink sink;
    io::ZipWriter zip(sink, io::ZipMethod::deflated);
    const io::Bytes parts[] = {std::as_bytes(std::span(member))};
    zip.add("x.npy", parts);
    zip.finish();
    spill(folder / "wide.npz", sink.take());
    const NamedArrays all = load_npz(folder / "wide.npz");
    EXPECT_EQ(want, all["x"].to_vector<int64_t>());
    EXPECT_EQ(dtype, all["x"].dtype());
  }
}

}  // namespace
}  // namespace mx
