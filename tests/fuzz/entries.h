// What a fuzzer calls, one function per reader. Each takes any bytes: it returns whether they were a valid
// file, and ends the process when a promise of the reader is broken: an exception that is no mx::Error, a
// tensor outside of the file, or content that does not survive being written and read again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mx::fuzz {

using Entry = bool (*)(std::span<const std::byte> file);

bool safetensors(std::span<const std::byte> file);
bool npy(std::span<const std::byte> file);
bool npz(std::span<const std::byte> file);
bool mxnet_params(std::span<const std::byte> file);
bool idx(std::span<const std::byte> file);

struct Target {
  const char* name;  ///< the folder of its corpus
  Entry entry;
};
inline constexpr Target kTargets[] = {
    {"safetensors", safetensors}, {"npy", npy}, {"npz", npz}, {"mxnet_params", mxnet_params}, {"idx", idx}};

}  // namespace mx::fuzz
