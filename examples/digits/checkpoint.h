// A checkpoint: named parts of arrays and a few texts in one safetensors file, which is replaced as a whole.
#pragma once

#include <string>

#include "ndarray/save.h"

namespace mx::examples {

class Checkpoint {
 public:
  void add(const std::string& part, const NamedArrays& arrays);
  void set(const std::string& name, const std::string& text) { texts_[name] = text; }
  /// Waits for the arrays. The file shows the old checkpoint or all of the new one, also when the process is
  /// killed meanwhile. `ops`: the calls to the operating system, for tests.
  void save(const std::string& path, io::FileOps& ops = io::FileOps::posix()) const;

  static Checkpoint load(const std::string& path);
  NamedArrays part(const std::string& name) const;
  /// Throws InvalidArgument when the text is another one.
  void expect(const std::string& name, const std::string& text) const;

 private:
  NamedArrays arrays_;
  FileMetadata texts_;
};

}  // namespace mx::examples
