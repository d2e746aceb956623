// The kinds of recurrent cells, and the numbers that describe them.
#pragma once

#include <cstdint>

namespace mx::kernels {

enum class RecurrentCell : uint8_t { tanh, relu, lstm, gru };

/// Parts of the products of a cell, each of the size of the hidden state.
constexpr int gates_of(RecurrentCell cell) {
  return cell == RecurrentCell::lstm ? 4 : cell == RecurrentCell::gru ? 3 : 1;
}

}  // namespace mx::kernels
