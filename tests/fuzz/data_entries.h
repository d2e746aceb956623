// The entry points of the fuzzers of mx::data: tables, RecordIO, images and tokenisers. As in entries.h, each
// takes arbitrary bytes, returns whether they were a valid file, and ends the process if a reader breaks a
// promise.
#pragma once

#include <cstddef>
#include <span>

#include "tests/fuzz/entries.h"

namespace mx::fuzz {

bool csv(std::span<const std::byte> file);
bool libsvm(std::span<const std::byte> file);
bool cifar(std::span<const std::byte> file);
bool recordio(std::span<const std::byte> file);
bool jpeg(std::span<const std::byte> file);
bool png(std::span<const std::byte> file);
/// A vocabulary, a byte of value 0, pairs, a byte of value 0, and a text to encode.
bool tokenizer(std::span<const std::byte> file);

inline constexpr Target kDataTargets[] = {
    {"csv", csv},   {"libsvm", libsvm}, {"cifar", cifar},        {"recordio", recordio},
    {"jpeg", jpeg}, {"png", png},       {"tokenizer", tokenizer}};

}  // namespace mx::fuzz
