#include "operators/einsum.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/elementwise_binary.h"
#include "operators/matmul.h"
#include "operators/reduce.h"

namespace mx {
namespace {

// A label names a dimension: the code of a letter, or for a dimension of "..." kFirstEllipsis plus its
// distance from the end.
constexpr int kFirstEllipsis = 128, kLabels = kFirstEllipsis + kMaxRank;
using Labels = std::vector<int>;
using LabelSet = std::bitset<kLabels>;

struct Term {
  NDArray array;
  Labels labels;  // one per dimension, all different
};

struct Equation {
  std::vector<Labels> inputs;
  Labels output;
};

bool has_label(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

std::string label_text(int label) {
  return label < kFirstEllipsis ? std::string("'") + static_cast<char>(label) + "'" : "'...'";
}

/// Returns the labels of one operand of rank `rank`, or of the result if `rank` is -1. In an operand, "..."
/// stands for the dimensions without a letter, and `ellipsis` is raised to their number. In the result, "..."
/// stands for `ellipsis` dimensions.
Labels parse_labels(const std::string& text, const std::string& all, int rank, int& ellipsis) {
  Labels labels;
  const auto dots = text.find("...");
  const std::string letters = dots == std::string::npos ? text : text.substr(0, dots) + text.substr(dots + 3);
  for (char c : letters)
    MX_CHECK((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), InvalidArgument,
             "[einsum] expected letters, '...', ',' and '->', got '", c, "' in \"", all, '"');
  const int count = static_cast<int>(letters.size());
  int covered = 0;
  if (rank >= 0) {
    MX_CHECK(dots == std::string::npos ? count == rank : count <= rank, InvalidArgument,
             "[einsum] expected an operand of rank ", count, dots == std::string::npos ? "" : " or more",
             " for \"", text, "\" in \"", all, "\", got rank ", rank);
    covered = rank - count;
    ellipsis = std::max(ellipsis, covered);
  } else if (dots != std::string::npos) {
    covered = ellipsis;
  }
  for (size_t i = 0; i <= letters.size(); ++i) {
    if (i == dots)
      for (int k = covered - 1; k >= 0; --k) labels.push_back(kFirstEllipsis + k);
    if (i < letters.size()) labels.push_back(letters[i]);
  }
  return labels;
}

Equation parse_equation(const std::string& subscripts, std::span<const NDArray> operands) {
  std::string text;
  for (char c : subscripts)
    if (c != ' ') text += c;
  const size_t arrow = text.find("->");
  const std::string left = text.substr(0, arrow);
  std::vector<std::string> parts(1);
  for (char c : left) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  MX_CHECK(parts.size() == operands.size(), InvalidArgument, "[einsum] expected ", parts.size(),
           " operands for \"", subscripts, "\", got ", operands.size());
  Equation equation;
  int ellipsis = 0;
  for (size_t i = 0; i < parts.size(); ++i)
    equation.inputs.push_back(parse_labels(parts[i], subscripts, operands[i].rank(), ellipsis));
  std::array<int, kLabels> times{};
  for (const Labels& labels : equation.inputs)
    for (int label : labels) ++times[static_cast<size_t>(label)];
  if (arrow == std::string::npos) {
    for (int k = ellipsis - 1; k >= 0; --k) equation.output.push_back(kFirstEllipsis + k);
    for (int label = 0; label < kFirstEllipsis; ++label)
      if (times[static_cast<size_t>(label)] == 1) equation.output.push_back(label);
    return equation;
  }
  equation.output = parse_labels(text.substr(arrow + 2), subscripts, -1, ellipsis);
  for (size_t i = 0; i < equation.output.size(); ++i) {
    const int label = equation.output[i];
    const bool again = std::find(equation.output.begin(), equation.output.begin() + static_cast<int64_t>(i),
                                 label) != equation.output.begin() + static_cast<int64_t>(i);
    MX_CHECK(!again && times[static_cast<size_t>(label)] > 0, InvalidArgument, "[einsum] expected ",
             label_text(label), again ? " only once after '->'" : " to appear before '->' too", ", got \"",
             subscripts, '"');
  }
  // As in NumPy, dimensions of "..." are never summed, so a result without them is an error.
  const bool dropped = ellipsis > 0 && text.substr(arrow + 2).find("...") == std::string::npos;
  MX_CHECK(!dropped, InvalidArgument, "[einsum] expected '...' after '->' as well as before it, got \"",
           subscripts, '"');
  return equation;
}

std::array<int64_t, kLabels> sizes_of(const Equation& equation, std::span<const NDArray> operands,
                                      const std::string& subscripts) {
  std::array<int64_t, kLabels> sizes;
  sizes.fill(1);
  for (size_t i = 0; i < operands.size(); ++i)
    for (size_t d = 0; d < equation.inputs[i].size(); ++d) {
      const int label = equation.inputs[i][d];
      int64_t& size = sizes[static_cast<size_t>(label)];
      const int64_t here = operands[i].shape()[static_cast<int>(d)];
      MX_CHECK(size == here || size == 1 || here == 1, InvalidArgument, "[einsum] expected one size for ",
               label_text(label), " in \"", subscripts, "\", got ", size, " and ", here, " in operand ", i,
               " of shape ", operands[i].shape());
      if (here != 1) size = here;
    }
  return sizes;
}

/// Returns the operand with each label once: a repeated label becomes a diagonal, and a dimension of size 1
/// that broadcasts is dropped.
Term prepared_term(const NDArray& operand, const Labels& labels, const std::array<int64_t, kLabels>& sizes,
                   const std::string& subscripts) {
  Term term{operand, labels};
  for (size_t i = 0; i < term.labels.size();) {
    const auto later =
        std::find(term.labels.begin() + static_cast<int64_t>(i) + 1, term.labels.end(), term.labels[i]);
    const auto d = static_cast<int>(i);
    if (later != term.labels.end()) {
      const int other = static_cast<int>(later - term.labels.begin());
      MX_CHECK(term.array.shape()[d] == term.array.shape()[other], InvalidArgument,
               "[einsum] expected equal sizes for ", label_text(term.labels[i]), " in \"", subscripts,
               "\", got shape ", operand.shape());
      const int label = term.labels[i];
      term.array = term.array.diagonal(0, d, other);  // its dimension is the last
      term.labels.erase(later);
      term.labels.erase(term.labels.begin() + d);
      term.labels.push_back(label);
    } else if (term.array.shape()[d] == 1 && sizes[static_cast<size_t>(term.labels[i])] != 1) {
      term.array = term.array.squeeze(d);
      term.labels.erase(term.labels.begin() + d);
    } else {
      ++i;
    }
  }
  return term;
}

/// Returns the sum over the dimensions whose labels are not kept.
Term summed(const Term& term, const LabelSet& kept, std::source_location where) {
  Axes axes;
  Labels rest;
  for (size_t d = 0; d < term.labels.size(); ++d) {
    if (kept[static_cast<size_t>(term.labels[d])]) {
      rest.push_back(term.labels[d]);
    } else {
      axes.push_back(static_cast<int64_t>(d));
    }
  }
  if (axes.empty()) return term;
  const DType type = term.array.dtype();
  if (type == bool_) return {any({term.array, where}, axes), rest};
  return {sum({term.array, where}, axes, false, type), rest};
}

/// Returns the term with its dimensions in the order of `labels`, which must contain all labels of the term.
/// A label that the term lacks becomes a dimension of size 1.
NDArray arranged(const Term& term, const Labels& labels) {
  Shape order;
  for (int label : labels) {
    const auto found = std::find(term.labels.begin(), term.labels.end(), label);
    if (found != term.labels.end()) order.push_back(found - term.labels.begin());
  }
  NDArray result = order.rank() < 2 ? term.array : term.array.transpose(order);
  for (size_t i = 0; i < labels.size(); ++i)
    if (!has_label(term.labels, labels[i])) result = result.expand_dims(static_cast<int64_t>(i));
  return result;
}

int64_t size_of_labels(const Labels& labels, const std::array<int64_t, kLabels>& sizes) {
  int64_t product = 1;
  for (int label : labels) product *= sizes[static_cast<size_t>(label)];
  return product;
}

/// Returns the product of two terms, summed over the labels that both have and that are not kept.
Term contracted(Term a, Term b, const LabelSet& kept, const std::array<int64_t, kLabels>& sizes,
                std::source_location where) {
  LabelSet in_a, in_b;
  for (int label : a.labels) in_a.set(static_cast<size_t>(label));
  for (int label : b.labels) in_b.set(static_cast<size_t>(label));
  a = summed(a, kept | in_b, where);
  b = summed(b, kept | in_a, where);
  Labels batch, rows, columns, terms;
  for (int label : a.labels) {
    const bool shared = has_label(b.labels, label), stays = kept[static_cast<size_t>(label)];
    (shared ? (stays ? batch : terms) : rows).push_back(label);
  }
  for (int label : b.labels)
    if (!has_label(a.labels, label)) columns.push_back(label);
  Labels result = batch;
  result.insert(result.end(), rows.begin(), rows.end());
  result.insert(result.end(), columns.begin(), columns.end());
  MX_CHECK(result.size() <= kMaxRank, InvalidArgument, "[einsum] expected intermediate results of rank ",
           kMaxRank, " at most, got ", result.size());
  if (terms.empty()) return {mul({arranged(a, result), where}, arranged(b, result)), result};
  const auto folded = [&](const Term& term, const Labels& first, const Labels& second) {
    Labels order = batch;
    order.insert(order.end(), first.begin(), first.end());
    order.insert(order.end(), second.begin(), second.end());
    Shape shape;
    for (int label : batch) shape.push_back(sizes[static_cast<size_t>(label)]);
    shape.push_back(size_of_labels(first, sizes));
    shape.push_back(size_of_labels(second, sizes));
    return arranged(term, order).reshape(shape, where);
  };
  const NDArray product = matmul({folded(a, rows, terms), where}, folded(b, terms, columns));
  Shape shape;
  for (int label : result) shape.push_back(sizes[static_cast<size_t>(label)]);
  return {product.reshape(shape, where), result};
}

/// Returns the number of multiplications that a pair of terms needs.
double pair_cost(const Term& a, const Term& b, const std::array<int64_t, kLabels>& sizes) {
  double cost = 1;
  for (int label : a.labels) cost *= static_cast<double>(sizes[static_cast<size_t>(label)]);
  for (int label : b.labels)
    if (!has_label(a.labels, label)) cost *= static_cast<double>(sizes[static_cast<size_t>(label)]);
  return cost;
}

}  // namespace

NDArray einsum(const EinsumText& equation_text, std::span<const NDArray> operands) try {
  const std::string& subscripts = equation_text.text;
  const std::source_location where = equation_text.where;
  MX_CHECK(!operands.empty(), InvalidArgument, "[einsum] expected at least one operand, got none");
  const Equation equation = parse_equation(subscripts, operands);
  const auto sizes = sizes_of(equation, operands, subscripts);
  DType type = operands[0].dtype();
  for (const NDArray& operand : operands) type = promote(type, operand.dtype());
  std::vector<Term> terms;
  for (size_t i = 0; i < operands.size(); ++i)
    terms.push_back(prepared_term(operands[i].to(type, where), equation.inputs[i], sizes, subscripts));
  LabelSet wanted;
  for (int label : equation.output) wanted.set(static_cast<size_t>(label));
  while (terms.size() > 1) {
    size_t first = 0, second = 1;
    for (size_t i = 0; i < terms.size(); ++i)
      for (size_t j = i + 1; j < terms.size(); ++j)
        if (pair_cost(terms[i], terms[j], sizes) < pair_cost(terms[first], terms[second], sizes)) {
          first = i;
          second = j;
        }
    LabelSet kept = wanted;
    for (size_t i = 0; i < terms.size(); ++i)
      if (i != first && i != second)
        for (int label : terms[i].labels) kept.set(static_cast<size_t>(label));
    Term product = contracted(terms[first], terms[second], kept, sizes, where);
    terms.erase(terms.begin() + static_cast<int64_t>(second));
    terms[first] = std::move(product);
  }
  return arranged(summed(terms[0], wanted, where), equation.output);
} catch (const Error&) {
  detail::rethrow_at(equation_text.where);
}

NDArray einsum(const EinsumText& equation_text, std::initializer_list<NDArray> operands) {
  return einsum(equation_text, std::span<const NDArray>(operands.begin(), operands.size()));
}

}  // namespace mx
