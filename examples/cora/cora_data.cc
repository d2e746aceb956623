#include "examples/cora/cora_data.h"

#include <sstream>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"
#include "ndarray/io/mapped_file.h"
#include "nn/data/gzip.h"

namespace mx::examples {
namespace {

std::string read_gzip(const std::string& path) {
  const io::MappedFile file(path);
  data::GzipReader reader(file.bytes(), "[cora] '" + path + "'");
  std::string text;
  std::vector<std::byte> piece(1 << 16);
  for (size_t got = piece.size(); got == piece.size();) {
    got = reader.read(piece);
    text.append(reinterpret_cast<const char*>(piece.data()), got);
  }
  reader.finish();
  return text;
}

/// Calls read(line) for each line; read() returns false for a line that it does not understand.
template <class F>
int64_t read_lines(const std::string& path, const F& read) {
  std::istringstream text(read_gzip(path));
  std::string line;
  int64_t number = 0;
  while (std::getline(text, line)) {
    std::istringstream words(line);
    ++number;
    MX_CHECK(read(words), FormatError, "[cora] '", path, "': expected line ", number,
             " as the README of the data says, got \"", line, '"');
  }
  return number;
}

}  // namespace

Cora read_cora(const std::string& folder) {
  std::vector<int64_t> classes, pointers{0}, words, parts[3];
  std::vector<float> shares;
  const int64_t papers = read_lines(folder + "/nodes.txt.gz", [&](std::istringstream& line) {
    int64_t kind = 0, word = 0;
    std::string part;
    if (!(line >> kind >> part) || kind < 0 || kind >= Cora::kClasses) return false;
    const auto paper = static_cast<int64_t>(classes.size());
    if (part == "train") parts[0].push_back(paper);
    if (part == "val") parts[1].push_back(paper);
    if (part == "test") parts[2].push_back(paper);
    classes.push_back(kind);
    while (line >> word) {
      if (word < 0 || word >= Cora::kWords) return false;
      words.push_back(word);
    }
    const auto end = static_cast<int64_t>(words.size());
    shares.resize(words.size(), 1.f / static_cast<float>(end - pointers.back()));
    pointers.push_back(end);
    return line.eof();
  });
  std::vector<int64_t> from, to;
  read_lines(folder + "/edges.txt.gz", [&](std::istringstream& line) {
    int64_t a = 0, b = 0;
    if (!(line >> a >> b) || a < 0 || b < 0 || a >= papers || b >= papers) return false;
    from.insert(from.end(), {a, b});
    to.insert(to.end(), {b, a});
    return true;
  });
  return {.words = {array(pointers), array(words), array(shares), {papers, Cora::kWords}},
          .graph = SparseCSR::from_edges(array(from), array(to), {papers, papers}),
          .classes = array(classes),
          .train = array(parts[0]),
          .validation = array(parts[1]),
          .test = array(parts[2])};
}

}  // namespace mx::examples
