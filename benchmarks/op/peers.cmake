# The peers of the operator benchmarks. Each is a separate program, so that its threads, its allocator and its
# symbols stay out of ours. A peer that is not found is left out. None is part of a bundle.
find_package(hwy QUIET)

add_library(mx_op_bench STATIC op/runner.cc)
target_link_libraries(mx_op_bench PUBLIC mx_bench_support PRIVATE mx_command_line mx_flags)
add_library(mx_train_bench STATIC train/runner.cc)
target_link_libraries(mx_train_bench PUBLIC mx_bench_support PRIVATE mx_command_line mx_flags)
if(hwy_FOUND)
  target_sources(mx_train_bench PRIVATE op/bandwidth.cc)
  target_compile_definitions(mx_train_bench PRIVATE MX_BENCH_PEAK)
  target_link_libraries(mx_train_bench PRIVATE hwy::hwy)
endif()

# op_program(<name> SOURCES ... LIBRARIES ... [RUNNER library]), and a test that runs all of its cases once.
function(op_program name)
  cmake_parse_arguments(ARG "PEER" "RUNNER" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT ARG_RUNNER)
    set(ARG_RUNNER mx_op_bench)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_RUNNER} ${ARG_LIBRARIES} mx_flags)
  set_target_properties(${name} PROPERTIES MX_STAYS_HERE "${ARG_PEER}")
  if(MX_TESTS)
    add_test(NAME ${name}_smoke COMMAND ${name} --smoke)
    set_tests_properties(${name}_smoke PROPERTIES LABELS bench TIMEOUT 300)
  endif()
endfunction()

if(hwy_FOUND)
  op_program(op_bench_limits SOURCES op_bench_limits.cc op/bandwidth.cc LIBRARIES hwy::hwy)
endif()

if(NOT MX_ENGINE_ONLY)
  op_program(eager_bench SOURCES eager_bench.cc LIBRARIES mx::executor)
  op_program(op_bench SOURCES op_bench.cc op/families.cc LIBRARIES mx::executor mx::optim)
  op_program(index_bench SOURCES index_bench.cc LIBRARIES mx::operators)
  op_program(registry_bench SOURCES registry_bench.cc ../tests/support/large_sample.cc LIBRARIES mx::operators mx::operator_samples)
  op_program(train_bench RUNNER mx_train_bench SOURCES train_bench.cc train/networks.cc LIBRARIES mx::nn)
endif()

# The peers' libraries are not instrumented.
if(MX_SANITIZE)
  return()
endif()
include(CheckCXXSourceCompiles)

find_path(MX_BENCH_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp)
find_library(MX_BENCH_DNNL_LIBRARY dnnl)
if(MX_BENCH_DNNL_INCLUDE AND MX_BENCH_DNNL_LIBRARY)
  # Version 3 describes primitives in another way.
  set(CMAKE_REQUIRED_INCLUDES ${MX_BENCH_DNNL_INCLUDE})
  set(CMAKE_REQUIRED_LIBRARIES ${MX_BENCH_DNNL_LIBRARY})
  set(CMAKE_REQUIRED_QUIET ON)
  check_cxx_source_compiles("#include <oneapi/dnnl/dnnl.hpp>
    int main() { return dnnl::logsoftmax_forward() && dnnl_version()->major != 2; }" MX_BENCH_DNNL_WORKS)
  if(MX_BENCH_DNNL_WORKS)
    op_program(op_bench_onednn PEER SOURCES op_bench_onednn.cc LIBRARIES ${MX_BENCH_DNNL_LIBRARY})
    target_include_directories(op_bench_onednn SYSTEM PRIVATE ${MX_BENCH_DNNL_INCLUDE})
  endif()
endif()

find_path(MX_BENCH_OPENBLAS_INCLUDE openblas_config.h
  PATH_SUFFIXES openblas openblas-pthread ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread)
find_library(MX_BENCH_OPENBLAS_LIBRARY openblas
  PATH_SUFFIXES openblas-pthread ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread)
if(MX_BENCH_OPENBLAS_INCLUDE AND MX_BENCH_OPENBLAS_LIBRARY)
  op_program(op_bench_openblas PEER SOURCES op_bench_openblas.cc LIBRARIES ${MX_BENCH_OPENBLAS_LIBRARY})
  target_include_directories(op_bench_openblas SYSTEM PRIVATE ${MX_BENCH_OPENBLAS_INCLUDE})
endif()

# MX_BENCH_TORCH: the folder that contains libtorch's include/ and lib/, for instance a PyTorch wheel's
# torch/. The default is the place where the distribution installs it.
set(MX_BENCH_TORCH "" CACHE PATH "Folder of libtorch, if not in the system's")
find_path(MX_BENCH_TORCH_INCLUDE ATen/ATen.h HINTS ${MX_BENCH_TORCH}/include)
find_path(MX_BENCH_TORCH_API torch/types.h
  HINTS ${MX_BENCH_TORCH_INCLUDE}/torch/csrc/api/include NO_DEFAULT_PATH)
find_library(MX_BENCH_TORCH_CPU torch_cpu HINTS ${MX_BENCH_TORCH}/lib ${MX_BENCH_TORCH}/lib/${CMAKE_LIBRARY_ARCHITECTURE})
find_library(MX_BENCH_C10 c10 HINTS ${MX_BENCH_TORCH}/lib ${MX_BENCH_TORCH}/lib/${CMAKE_LIBRARY_ARCHITECTURE})
if(MX_BENCH_TORCH_INCLUDE AND MX_BENCH_TORCH_API AND MX_BENCH_TORCH_CPU AND MX_BENCH_C10)
  # Wheels before 2.6 use another ABI of std::string.
  set(CMAKE_REQUIRED_INCLUDES ${MX_BENCH_TORCH_INCLUDE} ${MX_BENCH_TORCH_API})
  set(CMAKE_REQUIRED_LIBRARIES ${MX_BENCH_TORCH_CPU} ${MX_BENCH_C10})
  set(CMAKE_REQUIRED_FLAGS -std=c++20)
  set(CMAKE_REQUIRED_QUIET ON)
  check_cxx_source_compiles("#include <ATen/ATen.h>
    #include <ATen/Parallel.h>
    int main() { return at::get_parallel_info().empty() || at::ones({2}).numel() != 2; }" MX_BENCH_TORCH_WORKS)
  if(MX_BENCH_TORCH_WORKS)
    foreach(name op_bench_torch eager_bench_torch train_bench_torch)
      set(runner mx_op_bench)
      if(name MATCHES "^train")
        set(runner mx_train_bench)
      endif()
      set(sources ${name}.cc)
      if(name MATCHES "^op_")
        list(APPEND sources op/families_torch.cc)
      endif()
      op_program(${name} PEER RUNNER ${runner} SOURCES ${sources} LIBRARIES ${MX_BENCH_TORCH_CPU} ${MX_BENCH_C10})
      target_include_directories(${name} SYSTEM PRIVATE ${MX_BENCH_TORCH_INCLUDE} ${MX_BENCH_TORCH_API})
    endforeach()
  endif()
endif()
