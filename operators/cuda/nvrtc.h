// Compiles source text to machine code of a GPU with NVRTC, loaded from its shared library at the first use.
//
// Programs are not linked with the library: it has 100 MB, and most programs do not need it. It is found like
// any shared library, or in a folder that MX_CUDA_LIBRARIES names.
//
// Thread-safety: any thread may call, also several at once.
#pragma once

#include <string>

namespace mx::cuda {

/// Returns the machine code (a cubin) for an architecture such as 90. Throws DeviceError with the compiler's
/// messages, or with the linker's if the library cannot be loaded.
std::string compile(const std::string& source, int architecture);

/// The same as assembly text (PTX), always by NVRTC; for tests.
std::string assembly(const std::string& source, int architecture);

/// The version and the options of the compiler. Machine code depends on them, on the source and on the
/// architecture. Throws like compile().
const std::string& compiler_identity();

/// For tests: replaces the compiler. Null: NVRTC again.
using CompileFn = std::string (*)(const std::string& source, int architecture);
void replace_compiler(CompileFn compile);

}  // namespace mx::cuda
